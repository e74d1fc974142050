/* A load generator that costs little: replays encoded requests over a few connections, pipelined, in one thread.
 *
 *     load_generator produce|fetch PORT REQUESTS CONNECTIONS DEPTH SECONDS RATE PID[,PID]
 *
 * REQUESTS is a file of request_frames.py (Produce 9, Fetch 12, one partition each); connection i replays frame i.
 * DEPTH requests of a connection are in flight; RATE is requests per second over all connections, 0 for as many as go.
 * Fetch goes on behind what it read, and from the start again at the end.  PIDs are the broker's processes, whose CPU
 * time is measured.  Prints one line of JSON.  Latencies at a rate count from when a request should have been sent.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "wire.h"

enum { FRAMES_MAX = 512, IN_FLIGHT_MAX = 1024, LATENCIES_MAX = 8000000, EVENTS_MAX = 256, CORRELATION_ID = 8 };

typedef struct {
    uint8_t *bytes;
    size_t size;
    int fetch_offset_at; /* where the fetch offset stands, 0 in a Produce */
    int batch_at;        /* where the batch of an idempotent producer begins, 0 without one */
} Frame;

typedef struct {
    int socket;
    Frame frame; /* a copy of its own: correlation id, offset and sequence change */
    bool is_sending, wants_to_write;
    size_t sent;
    uint32_t next_correlation_id, expected_correlation_id;
    int in_flight;
    double started_at[IN_FLIGHT_MAX]; /* by correlation id */
    uint8_t *received;
    size_t received_size, received_capacity;
    uint64_t fetch_offset;
    uint32_t sequence;
} Connection;

static struct {
    bool is_fetch;
    int depth, poller, records_per_request;
    double rate;
} load;

static struct {
    long requests, records, errors, empty_fetches, latency_count;
    double bytes;
    double *latencies;
} seen;

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + at.tv_nsec / 1e9;
}

static double own_cpu_s(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

/* User and system time of the processes in a list with commas. */
static double cpu_s_of(const char *pids)
{
    double total = 0;
    char list[256];
    snprintf(list, sizeof list, "%s", pids);
    for (char *pid = strtok(list, ","); pid; pid = strtok(NULL, ",")) {
        char path[64], line[1024];
        snprintf(path, sizeof path, "/proc/%s/stat", pid);
        FILE *stat = fopen(path, "r");
        if (!stat) continue;
        if (fgets(line, sizeof line, stat)) {
            unsigned long user, system;
            char *after_name = strrchr(line, ')');
            if (after_name && sscanf(after_name + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) == 2)
                total += (user + system) / (double)sysconf(_SC_CLK_TCK);
        }
        fclose(stat);
    }
    return total;
}

/* Requests out. */

static void poll_for(Connection *c, bool wants_to_write)
{
    if (c->wants_to_write == wants_to_write) return;
    c->wants_to_write = wants_to_write;
    struct epoll_event event = {.events = EPOLLIN | (wants_to_write ? EPOLLOUT : 0), .data.ptr = c};
    epoll_ctl(load.poller, EPOLL_CTL_MOD, c->socket, &event);
}

static void number_batch(Connection *c)
{
    uint8_t *batch = c->frame.bytes + c->frame.batch_at;
    write32(batch + BATCH_BASE_SEQUENCE, c->sequence);
    write32(batch + BATCH_CRC, batch_crc(batch, read32(batch + BATCH_LENGTH) + BATCH_OVERHEAD));
    c->sequence += load.records_per_request;
}

static void start_request(Connection *c, double at)
{
    write32(c->frame.bytes + CORRELATION_ID, c->next_correlation_id);
    if (load.is_fetch) write64(c->frame.bytes + c->frame.fetch_offset_at, c->fetch_offset);
    if (c->frame.batch_at) number_batch(c);
    c->started_at[c->next_correlation_id % IN_FLIGHT_MAX] = at;
    c->next_correlation_id++;
    c->in_flight++;
    c->is_sending = true;
    c->sent = 0;
}

/* Send what is begun; false when the socket takes no more. */
static bool send_on(Connection *c)
{
    while (c->is_sending) {
        ssize_t sent = send(c->socket, c->frame.bytes + c->sent, c->frame.size - c->sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0) {
            if (errno != EAGAIN) die("send");
            poll_for(c, true);
            return false;
        }
        c->sent += sent;
        c->is_sending = c->sent < c->frame.size;
    }
    return true;
}

static void keep_full(Connection *c)
{
    while (send_on(c)) {
        if (c->in_flight >= load.depth) {
            poll_for(c, false);
            return;
        }
        start_request(c, now());
    }
}

/* At a fixed rate: start what is due on connections that are free; returns when the next request is due. */
static double send_what_is_due(Connection *connections, int count, double due)
{
    static int turn;
    for (double at = now(); due <= at; due += 1 / load.rate) {
        Connection *free = NULL;
        for (int i = 0; i < count && !free; i++) {
            Connection *c = connections + (turn + i) % count;
            if (!c->is_sending && c->in_flight < IN_FLIGHT_MAX) free = c, turn = (turn + i + 1) % count;
        }
        if (!free) break;
        start_request(free, due);
        send_on(free);
    }
    return due;
}

/* Responses in: `at` is behind the response header. */

static const uint8_t *skip_to_partition(const uint8_t *at)
{
    read_varint(&at); /* one topic */
    uint32_t name_size = read_varint(&at) - 1;
    at += name_size;
    read_varint(&at); /* one partition */
    return at + 4;    /* its number */
}

static void count_produced(Connection *c, const uint8_t *at)
{
    seen.bytes += c->frame.size;
    seen.records += load.records_per_request;
    int16_t error = (int16_t)read16(skip_to_partition(at));
    if (error && seen.errors++ < 3) fprintf(stderr, "produce: error %d\n", error);
}

static void count_fetched(Connection *c, const uint8_t *at)
{
    at = skip_to_partition(at + 4 + 2 + 4); /* throttle time, error, session id */
    int16_t error = (int16_t)read16(at);
    int64_t log_start_offset = (int64_t)read64(at + 2 + 8 + 8);
    at += 2 + 8 + 8 + 8;
    read_varint(&at); /* aborted transactions */
    at += 4;          /* preferred replica */
    uint32_t size = read_varint(&at);
    if (error || size <= 1) {
        *(error ? &seen.errors : &seen.empty_fetches) += 1;
        c->fetch_offset = log_start_offset < 0 ? 0 : (uint64_t)log_start_offset;
        return;
    }
    size -= 1;
    seen.bytes += size;
    for (const uint8_t *end = at + size; end - at >= BATCH_HEADER_SIZE; at += read32(at + BATCH_LENGTH) + BATCH_OVERHEAD) {
        c->fetch_offset = read64(at) + read32(at + BATCH_LAST_OFFSET_DELTA) + 1;
        seen.records += read32(at + BATCH_RECORD_COUNT);
    }
}

static void on_response(Connection *c, const uint8_t *response, double at)
{
    uint32_t correlation_id = read32(response);
    if (correlation_id != c->expected_correlation_id) {
        fprintf(stderr, "response %u where %u was due\n", correlation_id, c->expected_correlation_id);
        exit(1);
    }
    if (seen.latency_count < LATENCIES_MAX)
        seen.latencies[seen.latency_count++] = at - c->started_at[correlation_id % IN_FLIGHT_MAX];
    c->expected_correlation_id++;
    c->in_flight--;
    seen.requests++;
    (load.is_fetch ? count_fetched : count_produced)(c, response + 4 + 1); /* correlation id, no tags */
}

static void take_responses(Connection *c)
{
    double at = now();
    size_t position = 0;
    while (c->received_size - position >= LENGTH_SIZE) {
        size_t size = LENGTH_SIZE + read32(c->received + position);
        if (size > c->received_capacity) {
            c->received_capacity = size + 65536;
            c->received = realloc(c->received, c->received_capacity);
            break;
        }
        if (c->received_size - position < size) break;
        on_response(c, c->received + position + LENGTH_SIZE, at);
        position += size;
    }
    c->received_size -= position;
    memmove(c->received, c->received + position, c->received_size);
}

static void receive(Connection *c)
{
    for (;;) {
        size_t room = c->received_capacity - c->received_size;
        ssize_t size = recv(c->socket, c->received + c->received_size, room, MSG_DONTWAIT);
        if (size == 0) {
            fprintf(stderr, "the broker closed a connection\n");
            exit(3);
        }
        if (size < 0) {
            if (errno == EAGAIN) return;
            die("recv");
        }
        c->received_size += size;
        take_responses(c);
        if ((size_t)size < room) return;
    }
}

static void on_event(const struct epoll_event *event)
{
    Connection *c = event->data.ptr;
    if (event->events & (EPOLLIN | EPOLLHUP | EPOLLERR)) receive(c);
    if (load.rate <= 0) keep_full(c);
    else if (event->events & EPOLLOUT && send_on(c)) poll_for(c, false);
}

/* Set-up and result. */

static int read_frames(const char *path, Frame *frames)
{
    FILE *file = fopen(path, "rb");
    if (!file || fscanf(file, "%d\n", &load.records_per_request) != 1) die(path);
    int count = 0;
    Frame frame;
    while (count < FRAMES_MAX && fscanf(file, "%zu %d %d", &frame.size, &frame.fetch_offset_at, &frame.batch_at) == 3) {
        fgetc(file);
        frame.bytes = malloc(frame.size);
        if (fread(frame.bytes, 1, frame.size, file) != frame.size) die(path);
        frames[count++] = frame;
    }
    fclose(file);
    return count;
}

static void open_connection(Connection *c, int port, Frame frame)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1;
    c->socket = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(c->socket, (struct sockaddr *)&address, sizeof address)) die("connect");
    setsockopt(c->socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(c->socket, F_SETFL, O_NONBLOCK);
    c->frame = frame;
    c->frame.bytes = malloc(frame.size);
    memcpy(c->frame.bytes, frame.bytes, frame.size);
    if (load.is_fetch) c->fetch_offset = read64(frame.bytes + frame.fetch_offset_at);
    c->received_capacity = load.is_fetch ? 4 << 20 : 65536;
    c->received = malloc(c->received_capacity);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(load.poller, EPOLL_CTL_ADD, c->socket, &event);
}

static int by_value(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double latency_us(double part)
{
    return seen.latency_count ? seen.latencies[(long)((seen.latency_count - 1) * part)] * 1e6 : 0;
}

static void print_result(double seconds, double broker_cpu_s, double client_cpu_s)
{
    qsort(seen.latencies, seen.latency_count, sizeof *seen.latencies, by_value);
    printf("{\"requests_s\": %.0f, \"records_s\": %.0f, \"mb_s\": %.1f, \"cpu_s_gb\": %.4f, \"us_request\": %.3f, ",
           seen.requests / seconds, seen.records / seconds, seen.bytes / seconds / 1e6,
           seen.bytes > 0 ? broker_cpu_s / (seen.bytes / 1e9) : 0, seen.requests ? broker_cpu_s / seen.requests * 1e6 : 0);
    printf("\"broker_cpu\": %.2f, \"client_cpu\": %.2f, \"p50_us\": %.0f, \"p99_us\": %.0f, \"p999_us\": %.0f, ",
           broker_cpu_s / seconds, client_cpu_s / seconds, latency_us(0.5), latency_us(0.99), latency_us(0.999));
    printf("\"errors\": %ld, \"empty\": %ld}\n", seen.errors, seen.empty_fetches);
}

int main(int argc, char **argv)
{
    if (argc != 9) {
        fprintf(stderr, "usage: %s produce|fetch PORT REQUESTS CONNECTIONS DEPTH SECONDS RATE PID[,PID]\n", argv[0]);
        return 2;
    }
    static Frame frames[FRAMES_MAX];
    load.is_fetch = !strcmp(argv[1], "fetch");
    int frame_count = read_frames(argv[3], frames), count = atoi(argv[4]);
    load.depth = atoi(argv[5]);
    load.rate = atof(argv[7]);
    double seconds = atof(argv[6]);
    const char *pids = argv[8];
    load.poller = epoll_create1(0);
    seen.latencies = malloc(LATENCIES_MAX * sizeof *seen.latencies);
    Connection *connections = calloc(count, sizeof *connections);
    for (int i = 0; i < count; i++) open_connection(connections + i, atoi(argv[2]), frames[i % frame_count]);

    double due = now(), start = due + 0.3, end = start + seconds, broker_cpu_s = 0, client_cpu_s = 0;
    bool is_measuring = false; /* after a warm-up */
    if (load.rate <= 0)
        for (int i = 0; i < count; i++) keep_full(connections + i);
    for (double at = now(); at < end; at = now()) {
        if (!is_measuring && at >= start) {
            is_measuring = true;
            double *latencies = seen.latencies;
            memset(&seen, 0, sizeof seen);
            seen.latencies = latencies;
            broker_cpu_s = cpu_s_of(pids), client_cpu_s = own_cpu_s(), start = at;
        }
        struct timespec wait = {0, 1000000};
        if (load.rate > 0) {
            due = send_what_is_due(connections, count, due);
            double rest = due - now();
            wait.tv_nsec = rest < 0 ? 0 : rest > 0.1 ? 100000000 : (long)(rest * 1e9);
        }
        struct epoll_event events[EVENTS_MAX];
        int ready = epoll_pwait2(load.poller, events, EVENTS_MAX, &wait, NULL);
        for (int i = 0; i < ready; i++) on_event(events + i);
    }
    print_result(now() - start, cpu_s_of(pids) - broker_cpu_s, own_cpu_s() - client_cpu_s);
    return 0;
}
