#!/bin/bash
# Run in an image of Apache Kafka: format this controller once, without the features our brokers do not have
# (docs/operations.md, "Under Apache Kafka controllers"), and run it.  NODE_ID, NAME and CLUSTER_ID come from the environment.
set -euo pipefail
file=/tmp/controller.properties
cat /etc/wherry/kraft-controller.properties - >"$file" <<END
node.id=$NODE_ID
listeners=CONTROLLER://:9093
advertised.listeners=CONTROLLER://$NAME:9093
END
/opt/kafka/bin/kafka-storage.sh format --ignore-formatted -t "$CLUSTER_ID" -c "$file" \
  --initial-controllers "3001@controller-1:9093:d2hlcnJ5LWNvbnRyb2wtMQ,3002@controller-2:9093:d2hlcnJ5LWNvbnRyb2wtMg,3003@controller-3:9093:d2hlcnJ5LWNvbnRyb2wtMw" \
  --release-version 4.2 --feature group.version=0 --feature transaction.version=0 \
  --feature eligible.leader.replicas.version=0 --feature share.version=0 --feature streams.version=0
exec /opt/kafka/bin/kafka-server-start.sh "$file"
