"""Why there is no test cluster: something that this machine lacks, or a part that did not start."""


class Trouble(Exception):
    """Its text tells what was wanted, what was found, what works; tests skip with it, commands end with code 3."""
