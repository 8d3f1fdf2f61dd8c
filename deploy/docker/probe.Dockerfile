# The probe of one node.  From the root of the repository:
#
#   docker build -f deploy/docker/probe.Dockerfile -t synth-probe .
#   docker run --rm --read-only --cap-drop ALL --security-opt no-new-privileges --gpus all \
#       -e NVIDIA_DRIVER_CAPABILITIES=utility -e SYNTH_SERVER=https://synth.example:8443 \
#       synth-probe --watch --node $(hostname)
#
# The driver's libraries come from the host through the NVIDIA container toolkit. Not built or run in this repository's
# tests, which have no Docker daemon and no GPU: they check that every path copied exists and that every command parses.
FROM docker.io/library/python:3.12-slim-bookworm AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY synth ./synth
COPY probe ./probe
COPY solver ./solver
COPY server ./server
COPY runtime ./runtime
RUN python -m venv /opt/synth \
 && /opt/synth/bin/pip install --no-cache-dir ".[probe]"

FROM docker.io/library/python:3.12-slim-bookworm
COPY --from=build /opt/synth /opt/synth
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin synth
USER 10001:10001
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 SYNTH_CACHE=off
STOPSIGNAL SIGTERM
ENTRYPOINT ["/opt/synth/bin/synth", "probe"]
CMD ["--watch"]
