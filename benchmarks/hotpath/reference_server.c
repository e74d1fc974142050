/* The yardstick: the smallest server that does the work of Produce 9 and Fetch 12 for one partition per request.
 *
 *     reference_server PORT DIRECTORY SEGMENT_MB SEGMENTS_KEPT
 *
 * One thread: epoll, recv, CRC check, offset, pwrite to the page cache, answer; pread and writev for a fetch.  It knows
 * no topics, no errors and no clients but the load generator.  Not a floor: it moves partial frames about and writes
 * each batch by itself.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "wire.h"

enum {
    PARTITIONS = 64,
    SEGMENTS_MAX = 16,
    BATCHES_MAX = 70000, /* per segment */
    RECEIVE_BYTES = 256 << 10,
    FETCH_BYTES_MAX = 8 << 20,
    ANSWERS_BYTES = 1 << 16,
    ANSWER_BYTES_MAX = 1024,
    EVENTS_MAX = 256,
};

typedef struct {
    int file;
    uint64_t base_offset;
    long size;
    int batch_count;
    uint64_t *offsets; /* base offset and position of each batch */
    long *positions;
    char path[160];
} Segment;

typedef struct {
    Segment segments[SEGMENTS_MAX];
    int segment_count;
    uint64_t end_offset;
} Partition;

typedef struct {
    int socket;
    uint8_t *bytes;
    size_t size, capacity;
} Connection;

static Partition partitions[PARTITIONS];
static const char *directory;
static long segment_bytes;
static int segments_kept;
static uint8_t answers[ANSWERS_BYTES], *fetched; /* of the requests of one read */
static size_t answers_size;

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static void send_all(int socket, struct iovec *parts, int count)
{
    while (count) {
        ssize_t sent = writev(socket, parts, count);
        if (sent < 0) {
            if (errno != EAGAIN) return;
            usleep(20);
            continue;
        }
        for (; count && (size_t)sent >= parts->iov_len; parts++, count--) sent -= parts->iov_len;
        if (count) parts->iov_base = (char *)parts->iov_base + sent, parts->iov_len -= sent;
    }
}

static void flush_answers(Connection *c)
{
    struct iovec part = {answers, answers_size};
    if (answers_size) send_all(c->socket, &part, 1);
    answers_size = 0;
}

/* The log. */

static Segment *roll(Partition *partition, int number)
{
    if (partition->segment_count == segments_kept) {
        Segment *oldest = partition->segments;
        close(oldest->file);
        unlink(oldest->path);
        free(oldest->offsets);
        free(oldest->positions);
        memmove(oldest, oldest + 1, sizeof *oldest * --partition->segment_count);
    }
    Segment *segment = partition->segments + partition->segment_count++;
    *segment = (Segment){.base_offset = partition->end_offset};
    snprintf(segment->path, sizeof segment->path, "%s/%d-%020lu.log", directory, number, (unsigned long)partition->end_offset);
    segment->file = open(segment->path, O_CREAT | O_TRUNC | O_RDWR, 0644);
    if (segment->file < 0) die(segment->path);
    segment->offsets = malloc(BATCHES_MAX * sizeof *segment->offsets);
    segment->positions = malloc(BATCHES_MAX * sizeof *segment->positions);
    return segment;
}

static uint64_t append(int number, uint8_t *batch, size_t size)
{
    Partition *partition = partitions + number % PARTITIONS;
    if (batch_crc(batch, size) != read32(batch + BATCH_CRC)) fprintf(stderr, "a batch with a bad crc\n");
    uint64_t offset = partition->end_offset;
    write64(batch, offset);
    write32(batch + BATCH_LEADER_EPOCH, 0);
    Segment *segment = partition->segment_count ? partition->segments + partition->segment_count - 1 : roll(partition, number);
    if (segment->size + (long)size > segment_bytes || segment->batch_count == BATCHES_MAX) segment = roll(partition, number);
    if (pwrite(segment->file, batch, size, segment->size) != (ssize_t)size) die("pwrite");
    segment->offsets[segment->batch_count] = offset;
    segment->positions[segment->batch_count++] = segment->size;
    segment->size += size;
    partition->end_offset += read32(batch + BATCH_RECORD_COUNT);
    return offset;
}

/* The batches from `offset` on, as many as fit, at least one; returns their size, -1 when the offset is out of range. */
static long find(Partition *partition, uint64_t offset, long size_max, Segment **found, long *position)
{
    if (!partition->segment_count || offset < partition->segments[0].base_offset || offset >= partition->end_offset)
        return offset == partition->end_offset ? 0 : -1;
    int last = partition->segment_count - 1;
    while (partition->segments[last].base_offset > offset) last--;
    Segment *segment = *found = partition->segments + last;
    int low = 0, high = segment->batch_count - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (segment->offsets[middle] <= offset) low = middle;
        else high = middle - 1;
    }
    *position = segment->positions[low];
    if (segment->size - *position <= size_max) return segment->size - *position;
    int next = low + 1;
    while (next + 1 < segment->batch_count && segment->positions[next + 1] <= *position + size_max) next++;
    return (next < segment->batch_count ? segment->positions[next] : segment->size) - *position;
}

/* Requests. */

static uint8_t *begin_answer(uint8_t *at, const uint8_t *request)
{
    memcpy(at + LENGTH_SIZE, request + 4, 4); /* correlation id */
    at[LENGTH_SIZE + 4] = 0;
    return at + LENGTH_SIZE + 5;
}

static uint8_t *put_topic(uint8_t *at, const uint8_t *name, uint32_t name_size, int partition)
{
    *at++ = 2;
    at = write_varint(at, name_size + 1);
    memcpy(at, name, name_size);
    at += name_size;
    *at++ = 2;
    write32(at, partition);
    return at + 4;
}

static void produce(const uint8_t *request, const uint8_t *at)
{
    read_varint(&at); /* no transactional id */
    at += 2 + 4;      /* acks, timeout */
    read_varint(&at);
    uint32_t name_size = read_varint(&at) - 1;
    const uint8_t *name = at;
    at += name_size;
    read_varint(&at);
    int number = read32(at);
    at += 4;
    uint32_t size = read_varint(&at) - 1;
    uint64_t offset = append(number, (uint8_t *)at, size);

    uint8_t *answer = answers + answers_size, *end = begin_answer(answer, request);
    end = put_topic(end, name, name_size, number);
    memset(end, 0, 2);
    write64(end + 2, offset);
    write64(end + 10, UINT64_MAX); /* log append time */
    write64(end + 18, 0);          /* log start offset */
    memcpy(end + 26, "\1\0\0\0\0\0\0\0\0", 9); /* no record errors, no message; no tags; throttle time, no tags */
    end += 35;
    write32(answer, end - answer - LENGTH_SIZE);
    answers_size += end - answer;
}

static void fetch(Connection *c, const uint8_t *request, const uint8_t *at)
{
    at += 4 + 4 + 4 + 4 + 1 + 4 + 4; /* replica, wait, min and max bytes, isolation, session */
    read_varint(&at);
    uint32_t name_size = read_varint(&at) - 1;
    const uint8_t *name = at;
    at += name_size;
    read_varint(&at);
    int number = read32(at);
    uint64_t offset = read64(at + 8);
    long size_max = read32(at + 28), position = 0;
    Partition *partition = partitions + number % PARTITIONS;
    Segment *segment = NULL;
    long size = find(partition, offset, size_max, &segment, &position);

    uint8_t answer[ANSWER_BYTES_MAX], *end = begin_answer(answer, request);
    memset(end, 0, 10); /* throttle time, error, session */
    end = put_topic(end + 10, name, name_size, number);
    end[0] = 0, end[1] = size < 0; /* OFFSET_OUT_OF_RANGE */
    write64(end + 2, partition->end_offset);
    write64(end + 10, partition->end_offset);
    write64(end + 18, partition->segment_count ? partition->segments[0].base_offset : 0);
    end[26] = 0;
    write32(end + 27, UINT32_MAX); /* no preferred replica */
    if (size < 0) size = 0;
    end = write_varint(end + 31, size + 1);
    write32(answer, end - answer - LENGTH_SIZE + size + 3);
    if (size && pread(segment->file, fetched, size, position) != size) die("pread");
    struct iovec parts[] = {{answer, end - answer}, {fetched, size}, {"\0\0\0", 3}};
    send_all(c->socket, parts, 3);
}

static void handle(Connection *c, const uint8_t *request)
{
    const uint8_t *body = request + 10 + read16(request + 8) + 1; /* header with the client id, no tags */
    if (read16(request) == API_FETCH) {
        flush_answers(c);
        fetch(c, request, body);
        return;
    }
    produce(request, body);
    if (answers_size > ANSWERS_BYTES - ANSWER_BYTES_MAX) flush_answers(c);
}

static void handle_all(Connection *c)
{
    size_t position = 0;
    while (c->size - position >= LENGTH_SIZE) {
        size_t size = LENGTH_SIZE + read32(c->bytes + position);
        if (size > c->capacity) {
            c->capacity = size + 65536;
            c->bytes = realloc(c->bytes, c->capacity);
        }
        if (c->size - position < size) break;
        handle(c, c->bytes + position + LENGTH_SIZE);
        position += size;
    }
    if (position) {
        c->size -= position;
        memmove(c->bytes, c->bytes + position, c->size);
    }
    flush_answers(c);
}

/* Connections. */

static void accept_one(int listener, int poller)
{
    int one = 1, socket = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    if (socket < 0) return;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    Connection *c = calloc(1, sizeof *c);
    *c = (Connection){.socket = socket, .bytes = malloc(RECEIVE_BYTES), .capacity = RECEIVE_BYTES};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(poller, EPOLL_CTL_ADD, socket, &event);
}

static void receive(Connection *c)
{
    ssize_t size = recv(c->socket, c->bytes + c->size, c->capacity - c->size, 0);
    if (size == 0 || (size < 0 && errno != EAGAIN)) {
        close(c->socket);
        free(c->bytes);
        free(c);
    } else if (size > 0) {
        c->size += size;
        handle_all(c);
    }
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: %s PORT DIRECTORY SEGMENT_MB SEGMENTS_KEPT\n", argv[0]);
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    directory = argv[2];
    segment_bytes = atol(argv[3]) << 20;
    segments_kept = atoi(argv[4]);
    fetched = malloc(FETCH_BYTES_MAX);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1, poller = epoll_create1(0), listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 512)) die("bind");
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL}, events[EVENTS_MAX];
    epoll_ctl(poller, EPOLL_CTL_ADD, listener, &event);
    puts("ready");
    fflush(stdout);
    for (;;) {
        int ready = epoll_wait(poller, events, EVENTS_MAX, -1);
        for (int i = 0; i < ready; i++) {
            if (events[i].data.ptr) receive(events[i].data.ptr);
            else accept_one(listener, poller);
        }
    }
}
