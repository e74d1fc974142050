# The image of a broker: `docker build -t wherry .`, then `docker run -p 9092:9092 -p 9404:9404 wherry`.
# Three brokers with object storage, Prometheus and Grafana are in docker-compose.yml.
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
WORKDIR /src
RUN python -m venv /opt/wherry
COPY requirements-runtime.lock ./
RUN /opt/wherry/bin/pip install --no-cache-dir --no-deps --require-hashes -r requirements-runtime.lock
COPY pyproject.toml README.md LICENSE ./
COPY broker broker
# What builds the package is pinned too, and stays behind, as do the parts of botocore that tell of other services than those a
# broker may ask: buckets, and who it is.
RUN /opt/wherry/bin/pip install --no-cache-dir setuptools==80.9.0 \
 && /opt/wherry/bin/pip install --no-cache-dir --no-deps --no-build-isolation . \
 && /opt/wherry/bin/pip uninstall --yes --quiet setuptools pip \
 && find /opt/wherry/lib/python3.*/site-packages/botocore/data -mindepth 1 -maxdepth 1 -type d \
      ! -name s3 ! -name s3control ! -name sts ! -name sso ! -name sso-oidc ! -name signin -exec rm -r {} +

FROM ${PYTHON_IMAGE}
LABEL org.opencontainers.image.title="wherry" \
      org.opencontainers.image.description="A Kafka-compatible broker whose replicas meet in object storage" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN useradd --uid 10001 --user-group --home-dir /var/lib/wherry --no-create-home --shell /usr/sbin/nologin wherry \
 && install -d -o wherry -g wherry -m 0750 /var/lib/wherry
COPY --from=build /opt/wherry /opt/wherry
COPY config/containers/single.properties /etc/wherry/broker.properties
# The broker sets malloc's thresholds itself; how many heaps its threads may make can only be said before it starts.
ENV PATH=/opt/wherry/bin:$PATH \
    MALLOC_ARENA_MAX=2 \
    PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /var/lib/wherry
EXPOSE 9092 9404
STOPSIGNAL SIGTERM
# /readyz is 200 while the node serves: unfenced and listening.
HEALTHCHECK --interval=5s --timeout=4s --start-period=60s --retries=3 \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9404/readyz', timeout=3)"]
ENTRYPOINT ["wherry"]
CMD ["server", "/etc/wherry/broker.properties"]
