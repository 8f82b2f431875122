"""The written result: a results file, tables, figures and one HTML page, from JSON, frames and videos alone (no torch)."""
