// Asks this broker for /status and /metrics every two seconds and shows what they say.  Whatever comes from them becomes text,
// never markup.
import { Scrape } from "./metrics.js";

const LOOK_MS = 2000;
const RATE_MS = 10_000; // rates are of the last ten seconds,
const KEEP_MS = 60_000; // percentiles of the last minute
const MONTH_SECONDS = 30 * 86_400;
const EVENTS_MAX = 50;

const TOPICS = "kafka_server_brokertopicmetrics_";
const HOPS = [
  ["leader_append", "append at the leader"],
  ["combine_wait", "wait for others to share an object"],
  ["put", "put into the bucket"],
  ["publish", "announce"],
  ["metadata_delivery", "announcement to a follower, with put"],
  ["get", "get from the bucket"],
  ["follower_append", "append at a follower"],
  ["follower_fetch", "tell the leader"],
  ["high_watermark", "append to committed"],
  ["end_to_end", "end to end"],
];
const PATHS = [
  ["wal", "through the bucket"],
  ["fallback", "from the leader, for the bucket does not serve"],
  ["fetch", "from the leader"],
];
const NO_BUCKET_ITEMS = ["fetch", "tiered"]; // of the costs: no part of replication through buckets

// -- text -----------------------------------------------------------------------------------------------------------

const plain = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const precise = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const dollars = new Intl.NumberFormat("en", { style: "currency", currency: "USD" });
const cents = new Intl.NumberFormat("en", { style: "currency", currency: "USD", minimumFractionDigits: 4 });

function bytes(size) {
  if (size === Infinity) return "never";
  let unit = 0;
  while (Math.abs(size) >= 1000 && unit < 5) {
    size /= 1000;
    unit += 1;
  }
  return `${precise.format(size)} ${["B", "kB", "MB", "GB", "TB", "PB"][unit]}`;
}

const perSecond = (size) => `${bytes(size)}/s`;
const count = (number) => plain.format(number);
const rateOf = (number) => `${precise.format(number)}/s`;
const money = (amount) => (Math.abs(amount) < 1 ? cents : dollars).format(amount);
const ratio = (part) => `${plain.format(part * 100)} %`;

function seconds(time) {
  if (time === null) return "–";
  return time < 1 ? `${precise.format(time * 1000)} ms` : `${precise.format(time)} s`;
}

// -- elements -------------------------------------------------------------------------------------------------------

const $ = (id) => document.getElementById(id);
const say = (id, text) => ($(id).textContent = text);

// A cell is its text, or {text, is} with a class.
function row(cells) {
  const line = document.createElement("tr");
  for (const cell of cells) {
    const { text, is = "", node } = typeof cell === "object" ? cell : { text: cell };
    const box = line.insertCell();
    box.className = is;
    if (node) box.append(node);
    else box.textContent = text;
  }
  return line;
}

const fill = (id, rows) => $(id).replaceChildren(...rows.map(row));
const number = (text, is = "") => ({ text, is: `number ${is}` });
const alarming = (value) => (value > 0 ? "bad" : "");

function bar(half, whole, longest) {
  const svg = (name) => document.createElementNS("http://www.w3.org/2000/svg", name);
  const picture = svg("svg");
  picture.setAttribute("aria-hidden", "true");
  for (const [is, value] of [["whole", whole], ["half", half]]) {
    const box = svg("rect");
    box.setAttribute("class", is);
    box.setAttribute("height", "100%");
    box.setAttribute("width", `${Math.min(100, ((value ?? 0) / longest) * 100)}%`);
    picture.append(box);
  }
  return picture;
}

// -- what is shown --------------------------------------------------------------------------------------------------

function showNode(status) {
  const zone = status.rack === null ? "" : ` in ${status.rack}`;
  say("who", `node ${status.node_id}${zone}, ${status.roles.join(" and ")}, version ${status.version}, cluster ${status.cluster_id ?? "not known yet"}`);
  say("state", status.not_ready ?? "ready");
  $("state").className = status.not_ready === null ? "good" : "bad";
  document.title = `Wherry: node ${status.node_id}`;
}

function showCluster(status) {
  const cluster = status.cluster;
  if (cluster === null) return say("cluster-summary", "not known yet");
  const serving = cluster.brokers.filter((broker) => broker.state === "serving").length;
  const controller = cluster.controller_id === null ? "no controller is known" : `controller ${cluster.controller_id}`;
  say(
    "cluster-summary",
    `${serving} of ${cluster.brokers.length} brokers serve, ${controller}; ${count(cluster.partition_count)} partitions, ` +
      `${count(cluster.under_replicated)} under-replicated, ${count(cluster.without_leader)} without a leader`,
  );
  fill(
    "brokers",
    cluster.brokers.map((broker) => [
      { text: `${broker.id}${broker.id === cluster.controller_id ? ", controller" : ""}`, is: broker.id === status.node_id ? "here" : "" },
      broker.rack ?? "–",
      Object.values(broker.listeners).join(" "),
      { text: broker.state, is: broker.state === "serving" ? "word good" : "word bad" },
      number(count(broker.leads)),
      number(count(broker.replicas)),
      number(count(broker.in_sync), broker.in_sync < broker.replicas ? "bad" : ""),
    ]),
  );
}

function showTopics(cluster, now, before) {
  if (cluster === null) return;
  const left = cluster.topic_count - cluster.topics.length;
  say("topics-summary", `${count(cluster.topic_count)} topics${left > 0 ? `; ${count(left)} of them are not shown` : ""}`);
  const way = (is, yes, no) => (is === null ? "–" : is ? yes : no);
  fill(
    "topics",
    cluster.topics.map((topic) => {
      const ill = topic.without_leader > 0 ? `${topic.without_leader} without a leader` : topic.under_replicated > 0 ? `${topic.under_replicated} under-replicated` : "";
      return [
        topic.name,
        way(topic.through_bucket, "bucket", "leaders"),
        way(topic.tiered, "tiered", "local"),
        number(count(topic.partitions)),
        number(count(topic.replicas)),
        { text: ill || "good", is: ill ? "word bad" : "word good" },
        number(perSecond(now.rate(`${TOPICS}bytesin_total`, { topic: topic.name }, before))),
      ];
    }),
  );
}

function showClients(now, before, minute) {
  const produce = { request: "Produce", phase: "total" };
  const local = { request: "Fetch", phase: "local" };
  const quantile = (part, where) => seconds(now.quantile("broker_request_seconds", part, where, minute));
  const free = now.sum("broker_disk_free_bytes");
  fill("clients", [
    ["records in", number(rateOf(now.rate(`${TOPICS}messagesin_total`, {}, before)))],
    ["bytes in", number(perSecond(now.rate(`${TOPICS}bytesin_total`, {}, before)))],
    ["bytes out to consumers", number(perSecond(now.rate(`${TOPICS}bytesout_total`, {}, before)))],
    ["requests", number(rateOf(now.rate("kafka_network_requestmetrics_requests_total", {}, before)))],
    ["produce p50, p99", number(`${quantile(0.5, produce)}, ${quantile(0.99, produce)}`)],
    ["fetch in its handler p99", number(quantile(0.99, local))],
    ["connections", number(count(now.sum("kafka_server_socketservermetrics_connectioncount")))],
    ["disk free", number(`${bytes(free)}, ${ratio(free / Math.max(1, now.sum("broker_disk_size_bytes")))}`)],
  ]);
}

function showPaths(now, before) {
  const received = "broker_replication_bytes_total";
  fill(
    "paths",
    PATHS.map(([path, name]) => [
      name,
      number(perSecond(now.rate(received, { path }, before))),
      number(bytes(now.sum(received, { path }))),
      number(seconds(now.highest("broker_replication_lag_seconds", { path }))),
      number(count(now.highest("broker_replication_lag_records", { path }))),
      number(bytes(now.highest("broker_replication_lag_bytes", { path }))),
    ]),
  );
  const crossed = now
    .increases(received, {}, before)
    .filter(({ labels }) => labels.path !== "wal" && labels.zone_from && labels.zone_to && labels.zone_from !== labels.zone_to)
    .reduce((sum, each) => sum + each.value, 0);
  const span = before ? (now.at - before.at) / 1000 : 1;
  say("paths-summary", `Came as a follower; lags are those of the followers of what this broker leads. Between zones, and paid for: ${perSecond(before ? crossed / span : 0)}.`);
}

function showBuckets(now, before) {
  const requests = "broker_objectstore_requests_total";
  const circuits = "broker_wal_bucket_circuit_open";
  const stores = [...new Set([...now.valuesOf("store", circuits), ...now.valuesOf("store", requests)])].sort();
  fill(
    "buckets",
    stores.map((store) => {
      const isOpen = now.highest(circuits, { store }) > 0;
      const all = now.rate(requests, { store }, before);
      const good = now.rate(requests, { store, outcome: "ok" }, before);
      return [store, { text: isOpen ? "left alone" : "in use", is: isOpen ? "word bad" : "word good" }, number(rateOf(all)), number(rateOf(all - good))];
    }),
  );
  const fallback = now.sum(`${TOPICS}remotewalfallbackpartitions`);
  const late = now.highest(`${TOPICS}remotewalcopylagms`) / 1000;
  say(
    "buckets-summary",
    stores.length === 0
      ? "This broker has none."
      : `${count(fallback)} partitions in fallback; not in the bucket yet: ${bytes(now.sum(`${TOPICS}remotewalcopylagbytes`))}, ${seconds(late)}; ` +
          `${count(now.sum("broker_wal_objects_live"))} objects kept, ${bytes(now.sum("broker_wal_objects_live_bytes"))}`,
  );
}

function showHops(now, minute) {
  const hops = "broker_wal_hop_seconds";
  const passed = (since) => now.increase(`${hops}_count`, {}, since);
  const isRecent = minute && passed(minute) > 0;
  const since = isRecent ? minute : undefined;
  const measured = HOPS.map(([hop, name]) => ({
    name,
    half: now.quantile(hops, 0.5, { hop }, since),
    whole: now.quantile(hops, 0.99, { hop }, since),
    times: now.increase(`${hops}_count`, { hop }, since),
  }));
  const longest = Math.max(1e-9, ...measured.map((each) => each.whole ?? 0));
  say("hops-since", passed(undefined) === 0 ? "nothing came through a bucket" : isRecent ? `of the last ${count((now.at - minute.at) / 1000)} s` : "since the broker's start");
  fill(
    "hops",
    measured.map(({ name, half, whole, times }) => [name, number(seconds(half)), number(seconds(whole)), number(count(times)), { node: bar(half, whole, longest) }]),
  );
}

function showCosts(now, before) {
  const paid = "broker_cost_dollars_total";
  const monthly = (name, where) => now.rate(name, where, before) * MONTH_SECONDS;
  const items = now.valuesOf("item", paid);
  if (items.length === 0) return say("cost-summary", "This broker has no bucket, and reckons no costs.");
  const here = items.filter((item) => !NO_BUCKET_ITEMS.includes(item)).reduce((sum, item) => sum + monthly(paid, { item }), 0);
  const classic = monthly("broker_cost_saved_dollars_total", {}) + monthly(paid, { item: "fallback" });
  say("cost-summary", `30 days like the last seconds: ${money(here)} through buckets, ${money(classic)} for the same bytes between zones. What this broker leads saves ${money(now.sum("broker_cost_monthly_saving_dollars"))}.`);
  fill(
    "costs",
    items.map((item) => [item, number(money(monthly(paid, { item }))), number(money(now.sum(paid, { item })))]),
  );
  const uploaded = now.rate(`${TOPICS}remotewalcopybytes_total`, {}, before);
  say("break-even", `The bucket pays from ${perSecond(now.sum("broker_cost_break_even_bytes_per_second"))} on; uploaded now: ${perSecond(uploaded)}.`);
}

function showTiered(now, before) {
  const errors = now.sum(`${TOPICS}remotecopyerrors_total`) + now.sum(`${TOPICS}remotefetcherrors_total`) + now.sum(`${TOPICS}remotedeleteerrors_total`);
  fill("tiered", [
    ["in the bucket, of what this broker leads", number(bytes(now.sum(`${TOPICS}remotelogsizebytes`)))],
    ["to be copied", number(`${bytes(now.sum(`${TOPICS}remotecopylagbytes`))} in ${count(now.sum(`${TOPICS}remotecopylagsegments`))} segments`)],
    ["copied", number(perSecond(now.rate(`${TOPICS}remotecopybytes_total`, {}, before)))],
    ["read for consumers", number(perSecond(now.rate(`${TOPICS}remotefetchbytes_total`, {}, before)))],
    ["to be deleted", number(bytes(now.sum(`${TOPICS}remotedeletelagbytes`)))],
    ["local logs", number(bytes(now.sum("kafka_log_log_size")))],
    ["errors so far", number(count(errors), alarming(errors))],
  ]);
}

// -- events ---------------------------------------------------------------------------------------------------------

// What is worth a line when it changes, by name.
function facts(status, now) {
  const found = new Map([
    ["this broker", status.not_ready ?? "ready"],
    ["partitions in fallback", count(now.sum(`${TOPICS}remotewalfallbackpartitions`))],
  ]);
  for (const { labels, value } of now.rows("broker_wal_bucket_circuit_open")) {
    found.set(`bucket ${labels.store}`, value > 0 ? "left alone" : "in use");
  }
  if (status.cluster !== null) {
    found.set("controller", String(status.cluster.controller_id ?? "not known"));
    found.set("under-replicated partitions", count(status.cluster.under_replicated));
    found.set("partitions without a leader", count(status.cluster.without_leader));
    for (const broker of status.cluster.brokers) {
      found.set(`broker ${broker.id}`, broker.state);
      found.set(`partitions broker ${broker.id} leads`, count(broker.leads));
    }
  }
  return found;
}

function note(text) {
  const line = document.createElement("li");
  const time = document.createElement("time");
  time.textContent = new Date().toLocaleTimeString("en-GB");
  line.append(time, text);
  $("events").prepend(line);
  while ($("events").children.length > EVENTS_MAX) $("events").lastChild.remove();
}

function showEvents(known, found) {
  if (known === null) return note("this page was opened");
  for (const [name, value] of found) {
    if (known.get(name) !== value) note(known.has(name) ? `${name}: ${known.get(name)} → ${value}` : `${name}: ${value}`);
  }
}

// -- again and again ------------------------------------------------------------------------------------------------

const looks = [];
let known = null;
let lostAt = null;

async function get(path) {
  const answer = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(30_000) });
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer;
}

// The oldest look that is not older than that.
const lookOf = (now, age) => looks.find((look) => look !== now && now.at - look.at <= age);

async function look() {
  const [status, text] = await Promise.all([get("status").then((answer) => answer.json()), get("metrics").then((answer) => answer.text())]);
  const now = new Scrape(text, performance.now());
  looks.push(now);
  while (now.at - looks[0].at > KEEP_MS) looks.shift();
  const before = lookOf(now, RATE_MS);
  const minute = lookOf(now, KEEP_MS);
  showNode(status, now);
  showCluster(status);
  showTopics(status.cluster, now, before);
  showClients(now, before, minute);
  showPaths(now, before);
  showBuckets(now, before);
  showHops(now, minute);
  showCosts(now, before);
  showTiered(now, before);
  const found = facts(status, now);
  showEvents(known, found);
  known = found;
  document.body.dataset.looks = String(Number(document.body.dataset.looks ?? 0) + 1);
}

async function lookAgainAndAgain() {
  const began = performance.now();
  try {
    if (!document.hidden) await look();
    if (lostAt !== null && !document.hidden) {
      note("this broker answers again");
      lostAt = null;
    }
  } catch (error) {
    if (lostAt === null) {
      lostAt = new Date();
      note(`this broker does not answer: ${error.message}`);
    }
    say("state", `no answer since ${lostAt.toLocaleTimeString("en-GB")}`);
    $("state").className = "bad";
  }
  // A broker with very many partitions has much to tell: it is asked less often.
  const took = performance.now() - began;
  setTimeout(lookAgainAndAgain, Math.max(LOOK_MS, 10 * took));
}

lookAgainAndAgain();
