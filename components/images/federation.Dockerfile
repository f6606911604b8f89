# The image of a federation's coordinator and of its members: gangline with NVFlare, Opacus and torch, and bubblewrap, in
# which members run code of others. It is the site's, never made from a commit: what runs in a coordinator reads the kits.
# Build argument: BASE_IMAGE by digest, with bash and bubblewrap. Context: requirements.lock, which is
# requirements/federation-image.txt or a lock that has what tasks import as well, and the folder gangline/.
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
    && bwrap --version && /opt/gangline/bin/gangline --version \
    && /opt/gangline/bin/python -c 'import opacus, gangline.flare.controller, gangline.flare.executor, gangline.flare.pod'
ENV PATH=/opt/gangline/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONUNBUFFERED=1 PYTHONSAFEPATH=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /
USER 65532:65532
