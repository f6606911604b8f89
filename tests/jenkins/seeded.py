"""The job that the controller's configuration seeds."""

import yaml
from tests.jenkins.files import CONTROLLER
from tests.jenkins.groovy import Block, blocks, strings, tokens


def seeded_scripts() -> tuple[str, str]:
    """What refuses to start, then what makes the job."""
    refusing, making = yaml.safe_load(CONTROLLER.read_text())["jobs"]
    return refusing["script"], making["script"]


def seeded_job() -> Block:
    (found,) = blocks(tokens(seeded_scripts()[1]))
    return found


def script_of_the_job() -> str:
    """What each of its builds runs."""
    (factory,) = seeded_job().named("factory")[0].blocks
    return said(factory, "script")


def said(block: Block, name: str) -> str:
    """The one constant that `name(...)` of the block gets."""
    (place,) = [place for place, word in enumerate(block.inside) if word.text == name]
    return strings(block.inside[place + 2 : place + 3])
