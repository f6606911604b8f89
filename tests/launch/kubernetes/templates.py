"""Where each kind of root keeps the template of its pods."""


def template_of(rendered):
    spec = rendered.before[0][1]["spec"]["template"]["spec"] if rendered.before else rendered.root["spec"]
    return (spec["replicatedJobs"][0]["template"]["spec"] if "replicatedJobs" in spec else spec)["template"]
