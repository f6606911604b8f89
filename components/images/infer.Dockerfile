# The image of a server of models, and of the init container that verifies what it opens: KServe's server, torch, and the
# command line. Models are in no image: a version is a folder of the store, its code a layer of it.
# Build argument: BASE_IMAGE by digest. Context: requirements.lock, which is requirements/infer-image.txt or a lock that
# has what the model's code imports as well, and the folder gangline/.
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
COPY --chmod=0644 requirements.lock /opt/gangline/requirements.lock
RUN --mount=type=secret,id=pip,target=/run/secrets/pip.conf \
    python3 -m venv /opt/gangline \
    && PIP_CONFIG_FILE=/run/secrets/pip.conf /opt/gangline/bin/python -m pip install --no-cache-dir --no-compile \
        --disable-pip-version-check --no-deps --require-hashes --only-binary=:all: \
        --requirement /opt/gangline/requirements.lock
COPY gangline /opt/gangline/src/gangline
RUN site="$(/opt/gangline/bin/python -c 'import site; print(site.getsitepackages()[0])')" \
    && echo /opt/gangline/src > "$site/gangline.pth" \
    && printf '#!/opt/gangline/bin/python\nfrom gangline.cli.main import main\nmain()\n' > /opt/gangline/bin/gangline \
    && chmod 0755 /opt/gangline/bin/gangline \
    && chmod -R a+rX,go-w /opt/gangline \
    && /opt/gangline/bin/gangline --version \
    && /opt/gangline/bin/python -c 'import kserve, model_signing, minio, gangline.infer.server'
ENV PATH=/opt/gangline/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONUNBUFFERED=1 PYTHONSAFEPATH=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /
USER 65532:65532
