"""Where each kind of root keeps the template of its pods."""


def template_of(rendered):
    spec = rendered.before[0][1]["spec"]["template"]["spec"] if rendered.before else rendered.root["spec"]
    return (spec["replicatedJobs"][0]["template"]["spec"] if "replicatedJobs" in spec else spec)["template"]


def job_of(rendered):
    """Name of the Job that a controller makes of it, or that it is."""
    root = rendered.root
    return root["metadata"]["name"] + ("" if root["kind"] == "Job" else "-node-0")


def pod_of(rendered):
    """Its first pod, as the controller of Jobs makes it."""
    template = template_of(rendered)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job_of(rendered), "uid": "u", "controller": True}
    metadata = {**template["metadata"], "name": "gang-0", "ownerReferences": [owner]}
    return {"apiVersion": "v1", "kind": "Pod", **template, "metadata": metadata}
