// Sends items to a Verilated block, collects its answers and checks the handshake; called from cosim/harness/compiled.py.
#include <cstring>

#include "compiled.h"

namespace {

enum Pattern : uint32_t { NONE, RANDOM, PERIODIC, SHY };
enum Status : uint32_t { DONE, HUNG, CHANGED, UNEXPECTED };

// Says cycle by cycle whether a side is willing; the generator is splitmix64.
struct Willing {
    uint32_t pattern;
    uint64_t state;
    uint64_t cycle = 0;

    bool next() {
        if (pattern == PERIODIC) return cycle++ % 5 < 3;
        if (pattern != RANDOM) return true;
        uint64_t z = (state += 0x9E3779B97F4A7C15u);
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        return (z ^ (z >> 31)) >> 63;
    }
};

}  // namespace

extern "C" {

struct Exchange {  // mirrored by _exchange_type in compiled.py
    const uint32_t* items;
    uint64_t item_count;
    uint32_t* answers;
    uint64_t answer_count;
    uint64_t* accepted;  // cycle of each transfer, from the start of the call
    uint64_t* answered;
    const uint32_t* side_items;  // of the second input stream, offered whenever there is one left
    uint64_t side_count;
    uint64_t seed;
    uint64_t patience;  // cycles without any transfer after which the block counts as hung
    uint64_t quiet;     // cycles after the last answer in which none may come
    uint32_t source;
    uint32_t sink;
    uint64_t sent;  // from here on: results
    uint64_t received;
    uint64_t side_sent;
    uint64_t cycles;
    uint32_t status;
    uint32_t was[ANSWER_WORDS];  // the answer that changed, and what it changed to (or the unexpected one)
    uint32_t is[ANSWER_WORDS];
};

Block* saddle_new() { return new Block; }
void saddle_delete(Block* block) { delete block; }
void saddle_reset(Block* block) { block->reset(2); }

uint32_t saddle_exchange(Block* block, Exchange* x) {
    Vtop& top = *block->top;
    Willing offering{x->source, x->seed}, taking{x->sink, ~x->seed};
    bool offered = false, seen = false, held = false;
    uint64_t cycle = 0, last = 0;
    x->sent = x->received = x->side_sent = 0;
    x->status = DONE;
    while (x->sent < x->item_count || x->received < x->answer_count || x->side_sent < x->side_count) {
        if (!offered && x->sent < x->item_count && offering.next()) {
            put(top, x->items + x->sent * ITEM_WORDS);
            top.I_VALID = 1;
            offered = true;
        }
#ifdef SIDE_VALID
        top.SIDE_VALID = x->side_sent < x->side_count;
        if (x->side_sent < x->side_count) put_side(top, x->side_items + x->side_sent * SIDE_WORDS);
#endif
        const bool take = x->sink == SHY ? seen : taking.next();
        top.O_READY = take;
        top.eval();
        const bool accepted = offered && top.I_READY, valid = top.O_VALID;
        if (valid) get_port(top.O_PAYLOAD, x->is);
        if (held && (!valid || std::memcmp(x->is, x->was, sizeof x->is))) {
            if (!valid) std::memset(x->is, 0, sizeof x->is);
            x->status = CHANGED;
            break;
        }
        held = valid && !take;
        seen = held;
        if (held) std::memcpy(x->was, x->is, sizeof x->was);
        if (valid && take) {
            if (x->received == x->answer_count) {
                x->status = UNEXPECTED;
                break;
            }
            std::memcpy(x->answers + x->received * ANSWER_WORDS, x->is, sizeof x->is);
            x->answered[x->received++] = cycle;
        }
        if (accepted) x->accepted[x->sent++] = cycle;
        bool side_accepted = false;
#ifdef SIDE_VALID
        side_accepted = top.SIDE_VALID && top.SIDE_READY;
        x->side_sent += side_accepted;
#endif
        if (accepted || side_accepted || (valid && take)) {
            last = cycle;
        } else if (cycle - last > x->patience) {
            x->status = HUNG;
            break;
        }
        block->edge();
        ++cycle;
        if (accepted) {
            offered = false;
            top.I_VALID = 0;
        }
    }
    x->cycles = cycle;
    top.I_VALID = 0;
    top.O_READY = 0;
#ifdef SIDE_VALID
    top.SIDE_VALID = 0;
#endif
    for (uint64_t k = 0; k < x->quiet && x->status == DONE; ++k) {
        top.eval();
        if (top.O_VALID) {
            get_port(top.O_PAYLOAD, x->is);
            x->status = UNEXPECTED;
        }
        block->edge();
    }
    return x->status;
}

}  // extern "C"
