"""Registered models of MLflow, one way: a version for each published one, aliases as promotions set them.

MLflow numbers versions itself, so ours is a tag. Of two that were made at the same time the first number stays.
"""

from typing import TYPE_CHECKING

from gangline.trackers.mlflow import PROJECT, answers, open_writer
from gangline.trackers.protocol import MirroredModel, TrackerError, WriterSettings

if TYPE_CHECKING:
    from mlflow.entities.model_registry import RegisteredModel
    from mlflow.tracking import MlflowClient

VERSION = "gangline.version"


def mirror_model(settings: WriterSettings, model: MirroredModel) -> list[str]:
    """Make the version if it is missing and set its aliases; a sentence for each that named another one there.

    Raises:
        TrackerError: The model there is another project's, or of somebody who does not use gangline.
    """
    writer = open_writer(settings)
    client, run = writer.client, writer.look(model.run)
    with answers():
        registered = _registered(client, model)
        number = _number(client, model, run.id if run else None)
        return [text for alias in model.aliases if (text := _set_alias(client, model, alias, number, registered))]


def _registered(client: "MlflowClient", model: MirroredModel) -> "RegisteredModel":
    from mlflow.exceptions import MlflowException

    try:
        registered = client.create_registered_model(model.name, tags={PROJECT: model.project})
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
        registered = client.get_registered_model(model.name)
    if (owner := registered.tags.get(PROJECT)) != model.project:
        whose = f"the project {owner}" if owner else "somebody who does not use gangline"
        raise TrackerError(f"the model {model.name} there belongs to {whose} and is left alone; publish.model renames")
    return registered


def _number(client: "MlflowClient", model: MirroredModel, run: str | None) -> str:
    """MLflow's number of the version, made if it is missing."""
    wanted = f"name = '{model.name}' and tags.`{VERSION}` = '{model.version}'"
    if not (rows := client.search_model_versions(wanted)):
        tags = {**model.tags, VERSION: str(model.version)}
        made = client.create_model_version(model.name, model.source, run, tags=tags, await_creation_for=0)
        rows = client.search_model_versions(wanted)
        if any(int(row.version) < int(made.version) for row in rows):
            client.delete_model_version(model.name, made.version)
    return str(min((row.version for row in rows), key=int))


def _set_alias(
    client: "MlflowClient", model: MirroredModel, alias: str, number: str, registered: "RegisteredModel"
) -> str:
    """Point the alias at `number`; says so where it named neither that nor the version before."""
    there = registered.aliases.get(alias)
    if there == number:
        return ""
    client.set_registered_model_alias(model.name, alias, number)
    if there is None:
        return ""
    meant = client.get_model_version(model.name, there).tags.get(VERSION)
    if meant == str(model.aliases[alias]):
        return ""
    named = f"version {meant}" if meant else f"a version that is not ours, {there} of MLflow"
    return f"{model.name}@{alias} named {named} there, and is version {model.version} again"
