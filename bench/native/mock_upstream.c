// mock_upstream - an upstream for Chat Completions, Messages and Gemini that uses very little CPU time.
//
// A single-threaded epoll server. The path selects the API: .../messages, ...:generateContent, or chat for any other
// path. All APIs send the same pieces of text. The model name selects the response, because every gateway forwards it.
// The model name is in the request body, or in the path for Gemini:
//
//     mock-n64            64 content chunks, all written at once ("burst")
//     mock-n64-g20000     64 content chunks, one write() each, 20 000 us apart
//     mock-n64-g20000-s   same, and each delta is "@<monotonic ns, 16+ digits> t" so
//                         that the load generator can measure per-token delay
//     mock-n64-tools      the chunks are two calls, one after the other, in pieces (chat only)
//     mock-n64-reasoning  the first half of the chunks is reasoning (chat only)
//
// "stream": true in the body, or the path, selects SSE. Otherwise the response is one JSON document with text.
// Build: cc -O2 -o mock_upstream mock_upstream.c
// Run:   ./mock_upstream PORT
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { TEXT, TOOLS, REASONING };
enum { CHAT, MESSAGES, GEMINI };

typedef struct conn {
    int fd, slot;             // slot: index in the timer heap, -1 when idle
    char *in;  size_t in_len, in_cap;
    char *out; size_t out_len, out_off, out_cap;
    int n, sent, stamp, usage, kind, api;
    int64_t gap_ns, due;
    int want_write;
} conn;

static int ep;
static conn **heap; static int heap_len, heap_cap;
static const char *WORDS[] = {" the", " quick", " brown", " fox", " jumps", " over", " a", " lazy",
                              " dog", ",", " \\\"then", "\\\"", " caf\\u00e9", "\\n", " 日本", "."};

static int64_t now_ns(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000LL + t.tv_nsec; }

static void heap_swap(int a, int b) { conn *t = heap[a]; heap[a] = heap[b]; heap[b] = t; heap[a]->slot = a; heap[b]->slot = b; }
static void heap_up(int i) { while (i && heap[(i - 1) / 2]->due > heap[i]->due) { heap_swap(i, (i - 1) / 2); i = (i - 1) / 2; } }
static void heap_down(int i) {
    for (;;) {
        int m = i, l = 2 * i + 1, r = l + 1;
        if (l < heap_len && heap[l]->due < heap[m]->due) m = l;
        if (r < heap_len && heap[r]->due < heap[m]->due) m = r;
        if (m == i) return;
        heap_swap(i, m); i = m;
    }
}
static void heap_push(conn *c) {
    if (heap_len == heap_cap) { heap_cap = heap_cap ? heap_cap * 2 : 256; heap = realloc(heap, heap_cap * sizeof *heap); }
    heap[heap_len] = c; c->slot = heap_len; heap_up(heap_len++);
}
static void heap_remove(conn *c) {
    int i = c->slot; if (i < 0) return;
    heap_len--; if (i != heap_len) { heap[i] = heap[heap_len]; heap[i]->slot = i; heap_up(i); heap_down(heap[i]->slot); }
    c->slot = -1;
}

static void put(conn *c, const char *p, size_t n) {
    if (c->out_len + n > c->out_cap) { c->out_cap = (c->out_len + n) * 2 + 4096; c->out = realloc(c->out, c->out_cap); }
    memcpy(c->out + c->out_len, p, n); c->out_len += n;
}
static void putf(conn *c, const char *fmt, ...) {
    char b[4096]; va_list a; va_start(a, fmt); int n = vsnprintf(b, sizeof b, fmt, a); va_end(a); put(c, b, n);
}
static void put_frame(conn *c, const char *fmt, ...) {      // one HTTP chunk
    char b[4096]; va_list a; va_start(a, fmt); int n = vsnprintf(b, sizeof b, fmt, a); va_end(a);
    putf(c, "%x\r\n", n); put(c, b, n); put(c, "\r\n", 2);
}
static void conn_close(conn *c) { heap_remove(c); close(c->fd); free(c->in); free(c->out); free(c); }

static int flush(conn *c) {                                  // -1: connection gone
    while (c->out_off < c->out_len) {
        ssize_t w = send(c->fd, c->out + c->out_off, c->out_len - c->out_off, MSG_NOSIGNAL);
        if (w < 0) {
            if (errno != EAGAIN) return -1;
            if (!c->want_write) { c->want_write = 1; epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &(struct epoll_event){EPOLLIN | EPOLLOUT, {c}}); }
            return 0;
        }
        c->out_off += w;
    }
    c->out_off = c->out_len = 0;
    if (c->want_write) { c->want_write = 0; epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &(struct epoll_event){EPOLLIN, {c}}); }
    return 0;
}

#define CHUNK "data: {\"id\":\"chatcmpl-Bk3f0JmVfPq1mock\",\"object\":\"chat.completion.chunk\",\"created\":1760000000,\"model\":\"mock\"," \
              "\"service_tier\":\"default\",\"system_fingerprint\":\"fp_07871e2ad8\","
#define USAGE "\"usage\":{\"prompt_tokens\":4800,\"completion_tokens\":%d,\"total_tokens\":%d,\"prompt_tokens_details\":{\"cached_tokens\":1024,\"audio_tokens\":0}," \
              "\"completion_tokens_details\":{\"reasoning_tokens\":0,\"audio_tokens\":0,\"accepted_prediction_tokens\":0,\"rejected_prediction_tokens\":0}}"

static void emit_choice(conn *c, const char *delta) {
    put_frame(c, CHUNK "\"choices\":[{\"index\":0,\"delta\":{%s},\"logprobs\":null,\"finish_reason\":null}],\"obfuscation\":\"%.*s\"}\n\n",
              delta, 1 + (c->sent * 5) % 12, "q8Zt3LxYv0aKdR");
    c->sent++;
}
static void emit_call_delta(conn *c) {                       // two calls: a head each, then {"query":" word … "}
    char delta[256];
    int half = (c->n + 1) / 2, call = c->sent >= half, at = c->sent - call * half, last = (call ? c->n - half : half) - 1;
    if (at == 0)
        snprintf(delta, sizeof delta, "\"tool_calls\":[{\"index\":%d,\"id\":\"call_mock%08d\",\"type\":\"function\",\"function\":{\"name\":\"%s\",\"arguments\":\"\"}}]",
                 call, call, call ? "query_metrics" : "search_logs");
    else
        snprintf(delta, sizeof delta, "\"tool_calls\":[{\"index\":%d,\"function\":{\"arguments\":\"%s\"}}]",
                 call, at == last ? "\\\"}" : at == 1 ? "{\\\"query\\\":\\\"" : WORDS[at % 8]);
    emit_choice(c, delta);
}
#define ANSWER "{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"%s\"}],\"role\":\"model\"},%s\"index\":0}],\"usageMetadata\":{\"promptTokenCount\":4800,\"candidatesTokenCount\":%d," \
               "\"totalTokenCount\":%d,\"cachedContentTokenCount\":1024,\"promptTokensDetails\":[{\"modality\":\"TEXT\",\"tokenCount\":4800}]},\"modelVersion\":\"mock\",\"responseId\":\"Bk3f0JmVfPq1mock\"}"
#define MESSAGE "\"id\":\"msg_01Bk3f0JmVfPq1mock\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"mock\","
#define READ "\"input_tokens\":3776,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":1024,"

static void put_event(conn *c, const char *name, const char *fmt, ...) {
    char b[2048]; va_list a; va_start(a, fmt); vsnprintf(b, sizeof b, fmt, a); va_end(a);
    put_frame(c, "event: %s\ndata: {\"type\":\"%s\"%s}\n\n", name, name, b);
}
static void emit_head(conn *c) {
    if (c->api == CHAT)
        put_frame(c, CHUNK "\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null},\"logprobs\":null,\"finish_reason\":null}]}\n\n");
    else if (c->api == MESSAGES) {
        put_event(c, "message_start", ",\"message\":{" MESSAGE "\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":{" READ "\"output_tokens\":1,\"service_tier\":\"standard\"}}");
        put_event(c, "content_block_start", ",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}");
        put_event(c, "ping", "");
    }
}
static void emit_delta(conn *c) {
    char text[64], delta[128];
    if (c->api == CHAT && c->kind == TOOLS) { emit_call_delta(c); return; }
    if (c->stamp) snprintf(text, sizeof text, "@%016lld t", (long long)now_ns());
    else snprintf(text, sizeof text, "%s", WORDS[c->sent % 16]);
    if (c->api == MESSAGES) {                                // padded with spaces, like the real API
        put_event(c, "content_block_delta", ",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"%s\"}%*s", text, 1 + (c->sent * 5) % 12, "");
        c->sent++; return;
    }
    if (c->api == GEMINI) { put_frame(c, "data: " ANSWER "\r\n\r\n", text, "", c->sent + 1, 4801 + c->sent); c->sent++; return; }
    snprintf(delta, sizeof delta, "\"%s\":\"%s\"", c->kind == REASONING && c->sent < c->n / 2 ? "reasoning_content" : "content", text);
    emit_choice(c, delta);
}
static void emit_chat_tail(conn *c) {
    put_frame(c, CHUNK "\"choices\":[{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"%s\"}]}\n\n",
              c->kind == TOOLS ? "tool_calls" : "stop");
    if (c->usage) put_frame(c, CHUNK "\"choices\":[]," USAGE "}\n\n", c->n, 4800 + c->n);
    put_frame(c, "data: [DONE]\n\n");
}
static void emit_tail(conn *c) {
    if (c->api == CHAT) emit_chat_tail(c);
    else if (c->api == GEMINI) put_frame(c, "data: " ANSWER "\r\n\r\n", "", "\"finishReason\":\"STOP\",", c->n, 4800 + c->n);
    else {
        put_event(c, "content_block_stop", ",\"index\":0");
        put_event(c, "message_delta", ",\"delta\":{\"stop_reason\":\"end_turn\",\"stop_sequence\":null},\"usage\":{" READ "\"output_tokens\":%d}", c->n);
        put_event(c, "message_stop", "");
    }
    put(c, "0\r\n\r\n", 5);
}
static void put_whole(conn *c) {
    char *text = malloc(64 + c->n * 32), *b = malloc(4096 + c->n * 32); int k = 0;
    *text = 0;
    for (int i = 0; i < c->n; i++) k += sprintf(text + k, "%s", WORDS[i % 16]);
    if (c->api == MESSAGES)
        k = sprintf(b, "{" MESSAGE "\"content\":[{\"type\":\"text\",\"text\":\"%s\"}],\"stop_reason\":\"end_turn\",\"stop_sequence\":null,\"usage\":{" READ "\"output_tokens\":%d,\"service_tier\":\"standard\"}}", text, c->n);
    else if (c->api == GEMINI)
        k = sprintf(b, ANSWER, text, "\"finishReason\":\"STOP\",", c->n, 4800 + c->n);
    else
        k = sprintf(b, "{\"id\":\"chatcmpl-Bk3f0JmVfPq1mock\",\"object\":\"chat.completion\",\"created\":1760000000,\"model\":\"mock\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"%s\","
                       "\"refusal\":null,\"annotations\":[]},\"logprobs\":null,\"finish_reason\":\"stop\"}]," USAGE ",\"service_tier\":\"default\",\"system_fingerprint\":\"fp_07871e2ad8\"}", text, c->n, 4800 + c->n);
    putf(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", k); put(c, b, k);
    free(text); free(b);
}

static int64_t number(const char **at, const char *end) {
    int64_t n = 0;
    while (*at < end && **at >= '0' && **at <= '9') n = n * 10 + *(*at)++ - '0';
    return n;
}
static void read_options(conn *c, const char *m, const char *end) {
    c->n = 16; c->gap_ns = 0; c->stamp = 0; c->sent = 0; c->kind = TEXT;
    if (!m) return;
    m += 6; c->n = number(&m, end);
    while (m + 1 < end && *m++ == '-') {
        if (*m == 'g') { m++; c->gap_ns = number(&m, end) * 1000; }
        else if (*m == 's') { m++; c->stamp = 1; }
        else if (end - m >= 5 && !memcmp(m, "tools", 5)) { m += 5; c->kind = TOOLS; }
        else if (end - m >= 9 && !memcmp(m, "reasoning", 9)) { m += 9; c->kind = REASONING; }
        else return;
    }
}

static void respond(conn *c, const char *head, size_t head_len, const char *body, size_t len) {
    if (memcmp(head, "POST", 4) != 0) {
        static const char *m = "{\"object\":\"list\",\"data\":[{\"id\":\"mock\",\"object\":\"model\",\"created\":1,\"owned_by\":\"mock\"}]}";
        putf(c, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s", strlen(m), m);
        return;
    }
    size_t line = (char *)memchr(head, '\r', head_len) - head;
    int streams = memmem(head, line, ":streamGenerateContent", 22) != NULL;
    c->api = streams || memmem(head, line, ":generateContent", 16) ? GEMINI : memmem(head, line, "/messages", 9) ? MESSAGES : CHAT;
    if (c->api == GEMINI) read_options(c, memmem(head, line, "mock-n", 6), head + line);
    else read_options(c, memmem(body, len, "mock-n", 6), body + len);
    int stream = streams || memmem(body, len, "\"stream\":true", 13) || memmem(body, len, "\"stream\": true", 14);
    c->usage = memmem(body, len, "\"include_usage\":true", 20) || memmem(body, len, "\"include_usage\": true", 21);
    if (!stream) { put_whole(c); return; }
    putf(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n");
    emit_head(c);
    if (c->gap_ns == 0) { for (int i = 0; i < c->n; i++) emit_delta(c); emit_tail(c); }
    else { c->due = now_ns() + c->gap_ns; heap_push(c); }
}

static int on_readable(conn *c) {
    for (;;) {
        if (c->in_len + 65536 > c->in_cap) { c->in_cap = c->in_len + 131072; c->in = realloc(c->in, c->in_cap); }
        ssize_t r = recv(c->fd, c->in + c->in_len, c->in_cap - c->in_len - 1, 0);
        if (r == 0) return -1;
        if (r < 0) { if (errno == EAGAIN) break; return -1; }
        c->in_len += r;
        if (c->in_len < c->in_cap - 1) break;
    }
    while (c->in_len && c->slot < 0) {
        char *e = memmem(c->in, c->in_len, "\r\n\r\n", 4);
        if (!e) break;
        size_t head = e - c->in + 4, need = head; e[2] = 0;
        char *cl = strcasestr(c->in, "\ncontent-length:"), *te = strcasestr(c->in, "\ntransfer-encoding: chunked");
        e[2] = '\r';
        if (cl) need += strtoul(cl + 16, 0, 10);
        else if (te) { char *z = memmem(c->in + head - 2, c->in_len - head + 2, "\r\n0\r\n\r\n", 7); if (!z) break; need = z - c->in + 7; }
        if (c->in_len < need) break;
        respond(c, c->in, head, c->in + head, need - head);
        memmove(c->in, c->in + need, c->in_len - need); c->in_len -= need;
    }
    return flush(c);
}

int main(int argc, char **argv) {
    int port = argc > 1 ? atoi(argv[1]) : 9000, one = 1, ls = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    signal(SIGPIPE, SIG_IGN);
    setsockopt(ls, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(ls, (void *)&a, sizeof a) || listen(ls, 4096)) { perror("bind"); return 1; }
    ep = epoll_create1(0); epoll_ctl(ep, EPOLL_CTL_ADD, ls, &(struct epoll_event){EPOLLIN, {NULL}});
    struct epoll_event ev[512];
    for (;;) {
        struct timespec ts, *tp = NULL;
        if (heap_len) { int64_t d = heap[0]->due - now_ns(); if (d < 0) d = 0; ts.tv_sec = d / 1000000000; ts.tv_nsec = d % 1000000000; tp = &ts; }
        int k = epoll_pwait2(ep, ev, 512, tp, NULL);
        for (int i = 0; i < k; i++) {
            conn *c = ev[i].data.ptr;
            if (!c) {
                for (;;) {
                    int fd = accept4(ls, 0, 0, SOCK_NONBLOCK); if (fd < 0) break;
                    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                    c = calloc(1, sizeof *c); c->fd = fd; c->slot = -1;
                    epoll_ctl(ep, EPOLL_CTL_ADD, fd, &(struct epoll_event){EPOLLIN, {c}});
                }
                continue;
            }
            if (((ev[i].events & EPOLLOUT) && flush(c) < 0) || ((ev[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) && on_readable(c) < 0)) conn_close(c);
        }
        int64_t t = now_ns();
        while (heap_len && heap[0]->due <= t) {
            conn *c = heap[0]; emit_delta(c);
            if (c->sent >= c->n) { heap_remove(c); emit_tail(c); }
            else { c->due += c->gap_ns; heap_down(0); }
            if (flush(c) < 0) conn_close(c);
        }
    }
}
