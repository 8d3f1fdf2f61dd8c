# The synth service.  From the root of the repository:
#
#   docker build -f deploy/docker/server.Dockerfile -t synth-server .
#   docker run --read-only --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges \
#       -v synth-data:/data -v ./tokens:/run/secrets/tokens:ro -p 8080:8080 synth-server
#
# Not built or run in this repository's tests, which have no Docker daemon: they check that every path copied exists
# and that every command parses.
FROM docker.io/library/python:3.12-slim-bookworm AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY synth ./synth
COPY probe ./probe
COPY solver ./solver
COPY server ./server
COPY runtime ./runtime
RUN python -m venv /opt/synth \
 && /opt/synth/bin/pip install --no-cache-dir ".[server,postgresql]"

FROM docker.io/library/python:3.12-slim-bookworm
COPY --from=build /opt/synth /opt/synth
# a fixed number, so that Kubernetes' runAsNonRoot can tell
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin synth \
 && install -d -o synth -g synth -m 0700 /data
USER 10001:10001
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
VOLUME /data
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s \
    CMD ["/opt/synth/bin/python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/readyz', timeout=2)"]
ENTRYPOINT ["/opt/synth/bin/synth", "serve"]
CMD ["--host", "0.0.0.0", "--db", "/data/synth.db", "--tokens", "/run/secrets/tokens"]
