# The image of ranks: what the lock says and gangline, in a virtual environment of its own on the base image's Python.
# Build argument: BASE_IMAGE by digest. Context: requirements.lock and the folder gangline/.
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
COPY --chmod=0644 requirements.lock /opt/gangline/requirements.lock
RUN --mount=type=secret,id=pip,target=/run/secrets/pip.conf \
    python3 -m venv --system-site-packages /opt/gangline \
    && PIP_CONFIG_FILE=/run/secrets/pip.conf /opt/gangline/bin/python -m pip install --no-cache-dir --no-compile \
        --disable-pip-version-check --no-deps --require-hashes --only-binary=:all: \
        --requirement /opt/gangline/requirements.lock
COPY gangline /opt/gangline/src/gangline
RUN site="$(/opt/gangline/bin/python -c 'import site; print(site.getsitepackages()[0])')" \
    && echo /opt/gangline/src > "$site/gangline.pth" \
    && chmod -R a+rX,go-w /opt/gangline \
    && /opt/gangline/bin/python -c 'import gangline.errors'
ENV PATH=/opt/gangline/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONUNBUFFERED=1 PYTHONSAFEPATH=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /
USER 65532:65532
