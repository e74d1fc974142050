// Samples of Prometheus' text format, and what became more of them between two looks.

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/;
// One of these for each partition would be much to keep, and nobody looks at them here.
const NOT_KEPT = /^(?:kafka_cluster_partition_|kafka_server_fetcherlagmetrics_|kafka_log_log_(?!size)|broker_group_lag)/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;

function labelsOf(text) {
  const labels = {};
  for (const [, name, value] of text.matchAll(LABEL)) {
    labels[name] = value.replace(/\\(.)/g, (_, character) => (character === "n" ? "\n" : character));
  }
  return labels;
}

const numberOf = (text) => (text === "+Inf" ? Infinity : text === "-Inf" ? -Infinity : Number(text));

// One look at /metrics.  `at` is in milliseconds; `where` are labels a sample must have.
export class Scrape {
  constructor(text, at) {
    this.at = at;
    this.samples = new Map();
    for (const line of text.split("\n")) {
      if (line.startsWith("#") || NOT_KEPT.test(line)) continue;
      const match = LINE.exec(line);
      if (match === null) continue;
      const [, name, labels = "", value] = match;
      if (!this.samples.has(name)) this.samples.set(name, new Map());
      this.samples.get(name).set(labels, { labels: labelsOf(labels), value: numberOf(value) });
    }
  }

  rows(name, where = {}) {
    const wanted = Object.entries(where);
    const all = [...(this.samples.get(name)?.entries() ?? [])];
    return all
      .filter(([, { labels }]) => wanted.every(([label, value]) => labels[label] === value))
      .map(([key, { labels, value }]) => ({ key, labels, value }));
  }

  has(name, where = {}) {
    return this.rows(name, where).length > 0;
  }

  sum(name, where = {}) {
    return this.rows(name, where).reduce((sum, row) => sum + row.value, 0);
  }

  highest(name, where = {}) {
    return this.rows(name, where).reduce((highest, row) => Math.max(highest, row.value), 0);
  }

  valuesOf(label, name, where = {}) {
    return [...new Set(this.rows(name, where).map((row) => row.labels[label]))].sort();
  }

  // Of counters; one that is lower than before belongs to a process that began anew.
  increases(name, where, earlier) {
    const before = earlier?.samples.get(name);
    return this.rows(name, where).map((row) => {
      const was = before?.get(row.key)?.value ?? 0;
      return { ...row, value: row.value >= was ? row.value - was : row.value };
    });
  }

  increase(name, where, earlier) {
    return this.increases(name, where, earlier).reduce((sum, row) => sum + row.value, 0);
  }

  // Per second; 0 without an earlier look.
  rate(name, where, earlier) {
    if (!earlier || earlier.at >= this.at) return 0;
    return (this.increase(name, where, earlier) * 1000) / (this.at - earlier.at);
  }

  // Of a histogram, as Prometheus reckons it: even within a bucket; null when nothing was observed.
  quantile(name, part, where, earlier) {
    const byBound = new Map();
    for (const row of this.increases(`${name}_bucket`, where, earlier)) {
      const bound = numberOf(row.labels.le);
      byBound.set(bound, (byBound.get(bound) ?? 0) + row.value);
    }
    const buckets = [...byBound].sort(([a], [b]) => a - b);
    const total = buckets.at(-1)?.[1] ?? 0;
    if (total === 0) return null;
    let [below, belowCount] = [0, 0];
    for (const [bound, count] of buckets) {
      if (count >= part * total) {
        if (bound === Infinity) return below;
        return below + ((bound - below) * (part * total - belowCount)) / Math.max(count - belowCount, 1e-9);
      }
      [below, belowCount] = [bound, count];
    }
    return below;
  }
}
