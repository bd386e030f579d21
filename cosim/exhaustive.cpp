// Every product of two FP16 codes on a one-lane dot product, against the host's float product; see exhaustive.py.
#include <cmath>
#include <cstring>

#include "compiled.h"

namespace {

// Two FP16 values have at most 22 significand bits and a product in [2^-48, 2^32): a float holds it exactly.
inline uint32_t expected(const float* values, uint64_t item) {
    const float product = values[item & 0xFFFF] * values[item >> 16 & 0xFFFF] + 0.0f;  // -0 + 0 = +0
    if (std::isnan(product)) return 0x7FC00000;
    uint32_t code;
    std::memcpy(&code, &product, sizeof code);
    return code;
}

}  // namespace

extern "C" {

struct Products {  // mirrored by _Products in exhaustive.py
    const float* values;  // of every FP16 code
    uint64_t first;       // the items [first, first + count): a in the low half, b in the high half
    uint64_t count;
    uint64_t patience;
    uint64_t compared;  // from here on: results
    uint64_t wrong;
    uint64_t cycles;
    uint64_t wrong_item;  // the first one
    uint32_t wrong_got;
    uint32_t wrong_expected;
};

void saddle_products(Block* block, Products* x) {
    Vtop& top = *block->top;
    uint64_t sent = 0, cycle = 0, last = 0;
    x->compared = x->wrong = 0;
    top.O_READY = 1;
    while (x->compared < x->count && cycle - last <= x->patience) {
        const bool offered = sent < x->count;
        top.I_VALID = offered;
        top.I_PAYLOAD = static_cast<uint32_t>(x->first + sent);
        top.eval();
        if (offered && top.I_READY) ++sent;
        if (top.O_VALID) {
            const uint64_t item = x->first + x->compared++;
            const uint32_t got = top.O_PAYLOAD, right = expected(x->values, item);
            if (got != right && !x->wrong++) {
                x->wrong_item = item;
                x->wrong_got = got;
                x->wrong_expected = right;
            }
            last = cycle;
        }
        block->edge();
        ++cycle;
    }
    x->cycles = cycle;
    top.I_VALID = 0;
    top.O_READY = 0;
}

}  // extern "C"
