"""Entry points: one ``main()`` each over a ``run()`` from below. The only package that knows Hydra."""
