"""Why there is no test cluster: something that this machine lacks, or a part that did not start."""


class Trouble(Exception):
    """Its text tells what was wanted, what was found, what works; commands end with code 3."""


class Lacking(Trouble):
    """This machine cannot have a cluster as it is; tests skip with the text."""
