"""One episode as one file: a zarr 3 group in an uncompressed zip, the layout of ``zarr.storage.ZipStore``.

A file per episode makes an append atomic (one rename) and cheap (one fsync; as a folder the same group is about thirty files). Going
through zarr's asynchronous store costs 20 ms to read an episode and 80 ms to write one; this costs about 1 ms and 3 ms. What is written is
plain zarr 3 (regular chunks, little-endian bytes, blosc-zstd), and a test holds it against the zarr package in both directions:
``zarr.open_group(zarr.storage.ZipStore(path))`` opens it. Specification: zarr-specs core protocol 3.0; PKWARE APPNOTE 4.3.
"""

from __future__ import annotations

import json
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numcodecs import blosc

from robowm.errors import UserError

LEVEL = 3  # zstd level; higher ones cost more time than they save space on camera frames
TAIL = 1 << 15  # bytes read from a file's end: its directory and, just before it, its zarr.json
DATA_TYPES = {"bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"}
_END, _ENTRY, _LOCAL = struct.Struct("<4s4H2LH"), struct.Struct("<4s4B4HL2L5H2L"), struct.Struct("<4s2B4HL2L2H")


@dataclass(frozen=True)
class Group:
    """What is known about an episode's file without reading its arrays."""

    path: Path
    attributes: dict[str, Any]
    arrays: dict[str, dict]  # {key: zarr metadata of the array}
    entries: dict[str, tuple[int, int, int]]  # {file in the zip: (offset of its header, bytes, crc)}


def group_metadata(attributes: Mapping[str, Any], members: Mapping[str, dict] | None = None) -> dict:
    """Return the ``zarr.json`` of a group; ``members`` {name: array metadata} are repeated inside it, so that one read gives them all."""
    metadata: dict[str, Any] = {"attributes": dict(attributes), "zarr_format": 3, "node_type": "group"}
    if members is not None:
        metadata["consolidated_metadata"] = {"kind": "inline", "must_understand": False, "metadata": dict(members)}
    return metadata


def read_metadata(folder: Path) -> dict:
    """Return the parsed ``zarr.json`` of a group that is a folder."""
    path = folder / "zarr.json"
    try:
        metadata = json.loads(path.read_bytes())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not valid JSON ({error}); restore it from a copy") from error
    if metadata.get("zarr_format") != 3:
        raise UserError(f"{path} says zarr_format {metadata.get('zarr_format')!r}, expected 3")
    return metadata


def write_group(file: BinaryIO, attributes: Mapping[str, Any], arrays: Mapping[str, np.ndarray], rows: Mapping[str, int]) -> None:
    """Write ``arrays`` as one zipped group. ``rows`` gives the rows per chunk of the arrays that are not one chunk."""
    members = {}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for key, array in arrays.items():
            length = max(1, min(rows.get(key, len(array)), len(array)))
            chunks = (length, *(max(1, n) for n in array.shape[1:]))
            members[key] = _array_metadata(array.shape, array.dtype, chunks)
            for name, data in _chunks(array, chunks):
                archive.writestr(zipfile.ZipInfo(f"{key}/{name}"), data)
        for key, metadata in members.items():
            archive.writestr(zipfile.ZipInfo(f"{key}/zarr.json"), json.dumps(metadata))
        archive.writestr(zipfile.ZipInfo("zarr.json"), json.dumps(group_metadata(attributes, members)))


def open_group(path: Path) -> Group:
    """Read the directory and the metadata of a zipped group. Raises UserError if the file is damaged or of another format."""
    try:
        with path.open("rb") as file:
            entries = _read_directory(file)
            metadata = json.loads(_read_entry(file, "zarr.json", entries))
            arrays = metadata.get("consolidated_metadata", {}).get("metadata")
            if arrays is None:
                keys = [name.removesuffix("/zarr.json") for name in entries if name.endswith("/zarr.json")]
                arrays = {key: json.loads(_read_entry(file, f"{key}/zarr.json", entries)) for key in keys}
    except (struct.error, ValueError, KeyError) as error:
        raise UserError(f"{path} is not a zipped zarr group or is damaged ({error}); delete it or restore it from a copy") from error
    if metadata.get("zarr_format") != 3:
        raise UserError(f"{path} says zarr_format {metadata.get('zarr_format')!r}, expected 3")
    return Group(path, metadata.get("attributes", {}), arrays, entries)


def read_rows(group: Group, key: str, start: int = 0, stop: int | None = None, out: np.ndarray | None = None) -> np.ndarray:
    """Return rows ``start`` to ``stop`` (exclusive) of array ``key``, reading only the chunks they lie in, into ``out`` if given.

    Arrays must be chunked along their first dimension alone.
    """
    metadata = group.arrays[key]
    shape, chunks = tuple(metadata["shape"]), tuple(metadata["chunk_grid"]["configuration"]["chunk_shape"])
    if chunks[1:] != shape[1:] and 0 not in shape:
        raise UserError(f"{group.path}: {key} is chunked as {chunks} over {shape}; only chunks along the first dimension are read")
    dtype = _data_type(group.path, key, metadata)
    stop = shape[0] if stop is None else stop
    out = np.empty((stop - start, *shape[1:]), dtype) if out is None else out
    if 0 in out.shape:
        return out
    length, separator = chunks[0], metadata["chunk_key_encoding"]["configuration"]["separator"]
    tail = (separator + "0") * (len(shape) - 1)
    with group.path.open("rb") as file:
        for index in range(start // length, -(-stop // length)):
            name = f"{key}/c{separator}{index}{tail}"
            first, last = max(start, index * length), min(stop, (index + 1) * length)
            target = out[first - start : last - start]
            try:
                data = _read_entry(file, name, group.entries)
                if last - first == length and target.dtype == dtype and target.flags.c_contiguous:
                    blosc.decompress(data, target)
                else:
                    block = np.frombuffer(blosc.decompress(data), dtype).reshape(chunks)
                    target[:] = block[first - index * length : last - index * length]
            except (KeyError, ValueError, RuntimeError, struct.error) as error:
                raise UserError(f"{group.path}: {name} is missing or damaged ({error}); delete the file or restore it") from error
    return out


def _array_metadata(shape: tuple[int, ...], dtype: np.dtype, chunks: tuple[int, ...]) -> dict:
    compressor = {"typesize": dtype.itemsize, "cname": "zstd", "clevel": LEVEL, "shuffle": _shuffle(dtype)[0], "blocksize": 0}
    return {
        "shape": list(shape),
        "data_type": dtype.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunks)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": False if dtype.kind == "b" else 0.0 if dtype.kind == "f" else 0,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "blosc", "configuration": compressor}],
        "attributes": {},
        "zarr_format": 3,
        "node_type": "array",
        "storage_transformers": [],
    }


def _chunks(array: np.ndarray, chunks: tuple[int, ...]) -> Iterator[tuple[str, bytes]]:
    grid = product(*(range(-(-n // c)) for n, c in zip(array.shape, chunks, strict=True)))
    for index in grid:
        block = array[tuple(slice(i * c, (i + 1) * c) for i, c in zip(index, chunks, strict=True))]
        if block.shape != chunks:  # edge chunks are stored whole
            block, part = np.zeros(chunks, array.dtype), block
            block[tuple(slice(0, n) for n in part.shape)] = part
        yield "c/" + "/".join(map(str, index)), blosc.compress(np.ascontiguousarray(block), b"zstd", LEVEL, _shuffle(array.dtype)[1])


def _shuffle(dtype: np.dtype) -> tuple[str, int]:
    return ("noshuffle", blosc.NOSHUFFLE) if dtype.itemsize == 1 else ("shuffle", blosc.SHUFFLE)


def _data_type(path: Path, key: str, metadata: dict) -> np.dtype:
    name = metadata["data_type"]
    codecs = [codec["name"] for codec in metadata["codecs"]]
    if name not in DATA_TYPES or codecs != ["bytes", "blosc"]:
        raise UserError(f"{path}: {key} holds {name!r} through codecs {codecs}; expected numbers through bytes and blosc")
    return np.dtype(name)


def _read_directory(file: BinaryIO) -> dict[str, tuple[int, int, int]]:
    """Return {name: (offset of the local header, bytes, crc)} from a zip's central directory."""
    size = file.seek(0, 2)
    file.seek(max(0, size - TAIL))
    tail = file.read()
    at = tail.rfind(b"PK\x05\x06")
    if at < 0:
        raise ValueError("its end is missing")
    _, _, _, _, count, length, offset, _ = _END.unpack_from(tail, at)
    file.seek(offset)
    directory = file.read(length)
    entries, at = {}, 0
    for _ in range(count):
        fields = _ENTRY.unpack_from(directory, at)
        method, crc, stored, names, extra, comment, header = (fields[i] for i in (6, 9, 10, 12, 13, 14, 18))
        if method != zipfile.ZIP_STORED or header == 0xFFFFFFFF:
            raise ValueError("it is compressed as a zip or larger than 4 GiB")
        entries[directory[at + _ENTRY.size : at + _ENTRY.size + names].decode()] = (header, stored, crc)
        at += _ENTRY.size + names + extra + comment
    return entries


def _read_entry(file: BinaryIO, name: str, entries: Mapping[str, tuple[int, int, int]]) -> bytes:
    header, size, crc = entries[name]
    file.seek(header)
    data = file.read(_LOCAL.size + len(name) + size)
    local = _LOCAL.unpack_from(data)
    surplus = local[10] + local[11] - len(name)  # other writers may put extra fields between name and data
    data = (data + file.read(surplus))[-size:] if size else b""
    if zlib.crc32(data) != crc:
        raise ValueError(f"checksum of {name} differs")
    return data
