// loadgen - closed-loop HTTP/1.1 load generator that understands SSE.
//
// Every connection sends the next POST as soon as the previous response is complete. The text --stamp in the body is
// replaced by a number that is unique per conversation. Several --body are the turns of one conversation: all
// --conversations send their first turn, then all send their second turn, and so on. After the last turn new
// conversations start. Counts "data:" lines and checks that each response is a 200 that contains every --expect. If the
// upstream stamps its deltas (model mock-n..-g..-s), measures the delay of every token.
//
//   loadgen --port P --path /v1/responses --body req.json --conns 32 --requests 2000
//           [--duration S] [--ramp MS] [--expect response.completed]... [--bearer KEY] [--stamp TEXT]
//           [--conversations N] [--dump FILE]
// Prints one JSON object. Build: cc -O2 -o loadgen loadgen.c
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

typedef struct { uint32_t *v; size_t n, cap; } samples;      // microseconds (x10 for sub-us resolution)
typedef struct conn {
    int fd, connected, fresh, status, chunked, in_head, got_byte, hit;
    char *in; size_t in_len, in_cap;
    char *body; size_t b_len, b_cap, line;
    int64_t remain;                                            // bytes left of the body/chunk, -1 unknown
    int phase;                                                 // chunk parser: 0 size line, 1 data, 2 CRLF, 3 trailer
    size_t out_off; int64_t t0;
    char *req; size_t req_len, req_cap;                        // a copy of a turn with its stamp
} conn;
typedef struct { char *req; size_t len, stamp_at; } turn;      // a whole request

static int ep, port = 8000, conns = 1, ramp_ms; static double duration; static long requests = 100;
static const char *path = "/v1/responses", *body_files[64], *expect[8], *dump, *bearer = "sk-none"; static int expects;
static turn turns[64]; static int n_turns; static const char *stamp; static int64_t first_stamp; static long sent, conversations = 1;
static long started, done, ok, errors, events, reconnects; static int64_t bytes, deadline;
static samples ttfb, total, delay;

static int64_t now_ns(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000LL + t.tv_nsec; }
static void add(samples *s, int64_t ns) { if (s->n == s->cap) { s->cap = s->cap ? s->cap * 2 : 4096; s->v = realloc(s->v, s->cap * 4); } s->v[s->n++] = ns < 0 ? 0 : (uint32_t)(ns / 100); }
static int cmp(const void *a, const void *b) { uint32_t x = *(uint32_t *)a, y = *(uint32_t *)b; return (x > y) - (x < y); }
static double pct(samples *s, double p) { return s->n ? s->v[(size_t)(p * (s->n - 1))] / 10.0 : 0; }

static void c_open(conn *c);
static int has_all(conn *c) { for (int i = 0; i < expects; i++) if (!memmem(c->body, c->b_len, expect[i], strlen(expect[i]))) return 0; return 1; }
static void c_send(conn *c) {
    while (c->out_off < c->req_len) {
        ssize_t w = send(c->fd, c->req + c->out_off, c->req_len - c->out_off, MSG_NOSIGNAL);
        if (w < 0) { if (errno == EAGAIN) { epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &(struct epoll_event){EPOLLIN | EPOLLOUT, {c}}); } return; }
        c->out_off += w;
    }
    epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &(struct epoll_event){EPOLLIN, {c}});
}
static int more(void) { return (duration > 0 ? now_ns() < deadline : started < requests); }
static void c_begin(conn *c) {
    started++; c->in_len = c->b_len = c->line = 0; c->in_head = 1; c->got_byte = c->hit = c->status = 0; c->out_off = 0; c->phase = 0; c->t0 = now_ns();
    turn *t = &turns[sent / conversations % n_turns];
    long conversation = sent / (conversations * n_turns) * conversations + sent % conversations; sent++;
    if (c->req_cap < t->len) { c->req_cap = t->len; c->req = realloc(c->req, c->req_cap); }
    memcpy(c->req, t->req, t->len); c->req_len = t->len;
    if (stamp) {
        char digits[32]; size_t n = strlen(stamp); snprintf(digits, sizeof digits, "%0*lld", (int)n, (long long)((first_stamp + conversation) % 1000000000000LL));
        memcpy(c->req + t->stamp_at, digits, n);
    }
    c_send(c);
}
static void c_drop(conn *c) { if (c->fd >= 0) close(c->fd); c->fd = -1; }
static void c_open(conn *c) {
    int one = 1; struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0); setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    c->connected = 0; c->fresh = 1; connect(c->fd, (void *)&a, sizeof a);
    epoll_ctl(ep, EPOLL_CTL_ADD, c->fd, &(struct epoll_event){EPOLLIN | EPOLLOUT, {c}});
}
static void finish(conn *c, int good, int keep) {
    done++;
    if (good && c->status == 200 && c->hit) { ok++; add(&total, now_ns() - c->t0); } else errors++;
    if (dump) { FILE *f = fopen(dump, "w"); if (f) { fprintf(f, "HTTP %d\n", c->status); fwrite(c->body, 1, c->b_len, f); fclose(f); } dump = NULL; }
    if (!more()) { c_drop(c); return; }
    if (keep && good) c_begin(c); else { c_drop(c); reconnects++; c_open(c); }
}
static void scan_line(char *l, size_t n) {
    if (n > 5 && !memcmp(l, "data:", 5)) {
        events++;
        char *p = memmem(l, n, "\"@", 2);                       // "@<ns> t" and nothing after it: a stamped delta
        if (p) { char *e; long long t = strtoll(p + 2, &e, 10); if (e - p > 12 && !memcmp(e, " t\"", 3)) add(&delay, now_ns() - t); }
    }
}
static void body_bytes(conn *c, const char *p, size_t n) {
    if (c->b_len + n + 1 > c->b_cap) { c->b_cap = (c->b_len + n) * 2 + 65536; c->body = realloc(c->body, c->b_cap); }
    memcpy(c->body + c->b_len, p, n); c->b_len += n;
    char *nl;
    while ((nl = memchr(c->body + c->line, '\n', c->b_len - c->line))) { scan_line(c->body + c->line, nl - c->body - c->line); c->line = nl - c->body + 1; }
}
static int parse(conn *c) {                                     // 1: answer complete
    char *p = c->in, *end = c->in + c->in_len; int fin = 0;
    if (c->in_head) {
        char *e = memmem(p, c->in_len, "\r\n\r\n", 4); if (!e) return 0;
        *e = 0; c->status = atoi(p + 9);
        char *cl = strcasestr(p, "\ncontent-length:"); c->chunked = strcasestr(p, "\ntransfer-encoding: chunked") != NULL;
        c->remain = c->chunked ? 0 : cl ? atoll(cl + 16) : -1; c->in_head = 0; p = e + 4;
        if (!c->chunked && c->remain == 0) fin = 1;
    }
    while (p < end && !fin) {
        if (!c->chunked) {
            size_t n = end - p; if (c->remain >= 0 && (int64_t)n > c->remain) n = c->remain;
            body_bytes(c, p, n); p += n; if (c->remain >= 0 && (c->remain -= n) == 0) fin = 1;
        } else if (c->phase == 0) {
            char *nl = memchr(p, '\n', end - p); if (!nl) break;
            c->remain = strtoll(p, 0, 16); p = nl + 1; c->phase = c->remain ? 1 : 3;
        } else if (c->phase == 1) {
            size_t n = end - p; if ((int64_t)n > c->remain) n = c->remain;
            body_bytes(c, p, n); p += n; if ((c->remain -= n) == 0) c->phase = 2;
        } else { char *nl = memchr(p, '\n', end - p); if (!nl) break; p = nl + 1; if (c->phase == 3) fin = 1; c->phase = 0; }
    }
    c->in_len = end - p; memmove(c->in, p, c->in_len);
    return fin;
}
static void c_read(conn *c) {
    if (c->in_cap - c->in_len < 65536) { c->in_cap = c->in_len + 131072; c->in = realloc(c->in, c->in_cap); }
    ssize_t r = recv(c->fd, c->in + c->in_len, c->in_cap - c->in_len, 0);
    if (r < 0 && errno == EAGAIN) return;
    if (r <= 0) {
        if (c->in_head || c->chunked || c->remain > 0) {
            if (!c->fresh && !c->got_byte) { started--; c_drop(c); reconnects++; c_open(c); return; }   // idle keep-alive race
            finish(c, 0, 0);
        } else { c->hit = has_all(c); finish(c, 1, 0); }
        return;
    }
    if (!c->got_byte) { c->got_byte = 1; add(&ttfb, now_ns() - c->t0); }
    c->in_len += r; bytes += r;
    if (parse(c)) {
        if (c->b_len > c->line) scan_line(c->body + c->line, c->b_len - c->line);
        c->hit = has_all(c); c->fresh = 0; finish(c, 1, 1);
    }
}
static int read_turn(const char *file, turn *t) {
    FILE *f = fopen(file, "rb"); if (!f) { perror(file); return 0; }
    fseek(f, 0, SEEK_END); size_t n = ftell(f); rewind(f);
    t->req = malloc(n + 16384); t->len = sprintf(t->req, "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\nAuthorization: Bearer %s\r\nAccept: text/event-stream, application/json\r\nUser-Agent: loadgen/1\r\nContent-Length: %zu\r\n\r\n", path, port, bearer, n);
    t->len += fread(t->req + t->len, 1, n, f); fclose(f);
    char *found = stamp ? memmem(t->req, t->len, stamp, strlen(stamp)) : t->req;
    if (!found || (stamp && strlen(stamp) > 12)) { fprintf(stderr, "%s does not contain the stamp, or the stamp is longer than 12 characters: %s\n", file, stamp); return 0; }
    t->stamp_at = found - t->req;
    return 1;
}
int main(int argc, char **argv) {
    static struct option o[] = {{"port", 1, 0, 'p'}, {"path", 1, 0, 'P'}, {"body", 1, 0, 'b'}, {"conns", 1, 0, 'c'}, {"requests", 1, 0, 'n'}, {"duration", 1, 0, 'd'},
        {"ramp", 1, 0, 'r'}, {"expect", 1, 0, 'e'}, {"dump", 1, 0, 'D'}, {"bearer", 1, 0, 'B'}, {"stamp", 1, 0, 's'}, {"conversations", 1, 0, 'C'}, {0}};
    for (int k; (k = getopt_long(argc, argv, "", o, 0)) != -1;) switch (k) {
        case 'p': port = atoi(optarg); break; case 'P': path = optarg; break; case 'b': if (n_turns < 64) body_files[n_turns++] = optarg; break; case 'c': conns = atoi(optarg); break;
        case 'n': requests = atol(optarg); break; case 'd': duration = atof(optarg); break; case 'r': ramp_ms = atoi(optarg); break; case 'e': if (expects < 8) expect[expects++] = optarg; break;
        case 'D': dump = optarg; break; case 'B': bearer = optarg; break; case 's': stamp = optarg; break; case 'C': conversations = atol(optarg); break; default: return 2; }
    signal(SIGPIPE, SIG_IGN);
    if (!n_turns || conversations < 1) { fprintf(stderr, "expected at least one --body and one conversation\n"); return 2; }
    for (int i = 0; i < n_turns; i++) if (!read_turn(body_files[i], &turns[i])) return 2;
    first_stamp = now_ns() / 1000;
    ep = epoll_create1(0); conn *cs = calloc(conns, sizeof *cs); int64_t t0 = now_ns(); deadline = t0 + (int64_t)(duration * 1e9);
    int64_t hard = t0 + (int64_t)((duration > 0 ? duration + 60 : 600) * 1e9); int opened = 0;
    struct epoll_event ev[1024];
    while (now_ns() < hard) {
        while (opened < conns && now_ns() - t0 >= (int64_t)ramp_ms * 1000000 * opened / conns) { if (duration <= 0 && started + 1 > requests) { opened = conns; break; } c_open(&cs[opened++]); }
        int k = epoll_wait(ep, ev, 1024, opened < conns ? 1 : 1000);
        for (int i = 0; i < k; i++) {
            conn *c = ev[i].data.ptr; if (c->fd < 0) continue;
            if (!c->connected) {
                int e = 0; socklen_t l = sizeof e; getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &e, &l);
                if (e || (ev[i].events & EPOLLERR)) { started++; c->status = 0; finish(c, 0, 0); continue; }
                if (!(ev[i].events & EPOLLOUT)) continue;
                if (!more()) { c_drop(c); continue; }
                c->connected = 1; c_begin(c); continue;
            }
            if (ev[i].events & EPOLLOUT) c_send(c);
            if (ev[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) c_read(c);
        }
        if (opened >= conns && started == done && !more()) break;
    }
    double el = (now_ns() - t0) / 1e9; struct rusage u; getrusage(RUSAGE_SELF, &u);
    qsort(ttfb.v, ttfb.n, 4, cmp); qsort(total.v, total.n, 4, cmp); qsort(delay.v, delay.n, 4, cmp);
    printf("{\"requests\":%ld,\"ok\":%ld,\"errors\":%ld,\"reconnects\":%ld,\"elapsed\":%.4f,\"rps\":%.2f,\"events\":%ld,\"bytes\":%lld,"
           "\"ttfb_us\":{\"p50\":%.1f,\"p99\":%.1f},\"total_us\":{\"p50\":%.1f,\"p99\":%.1f},\"delay_us\":{\"n\":%zu,\"p50\":%.1f,\"p99\":%.1f,\"p999\":%.1f,\"max\":%.1f},\"cpu_s\":%.3f}\n",
           done, ok, errors + (started - done), reconnects, el, ok / el, events, (long long)bytes, pct(&ttfb, .5), pct(&ttfb, .99), pct(&total, .5), pct(&total, .99),
           delay.n, pct(&delay, .5), pct(&delay, .99), pct(&delay, .999), pct(&delay, 1), u.ru_utime.tv_sec + u.ru_utime.tv_usec / 1e6 + u.ru_stime.tv_sec + u.ru_stime.tv_usec / 1e6);
    return 0;
}
