#!/bin/bash
# collect.sh VERSION: Apache Kafka's jars from Maven Central as .cache/kafka-VERSION/*.jar, once.
set -euo pipefail
version=${1:?version of Apache Kafka}
here=$(cd "$(dirname "$0")" && pwd)
out=$(cd "$here/../.." && pwd)/.cache/kafka-$version
[ -f "$out/.complete" ] && exit 0
command -v mvn >/dev/null || { echo "Maven is missing: install it to run the tests marked java" >&2; exit 1; }
mkdir -p "$out"
mvn -q -B -f "$here/pom.xml" -Dkafka.version="$version" \
  org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
  -DincludeScope=runtime -DoutputDirectory="$out"
touch "$out/.complete"
