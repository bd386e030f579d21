// One Verilated block behind its streams i and o.  Included by compiled.cpp and by other sources that drive the block;
// ports.h, made for each block, gives ITEM_WORDS, ANSWER_WORDS, put() and the port names; for a block with a second input
// stream also SIDE_WORDS, put_side(), SIDE_VALID and SIDE_READY.
#pragma once
#include <cstdint>
#include <memory>

#include "Vtop.h"
#include "verilated.h"

template <typename Port>
inline void set_port(Port& port, const uint32_t* words) {
    if constexpr (sizeof(Port) == 8) {
        port = static_cast<uint64_t>(words[1]) << 32 | words[0];
    } else {
        port = static_cast<Port>(words[0]);
    }
}
template <std::size_t N>
inline void set_port(VlWide<N>& port, const uint32_t* words) {
    for (std::size_t k = 0; k < N; ++k) port[k] = words[k];
}
template <typename Port>
inline void get_port(const Port& port, uint32_t* words) {
    words[0] = static_cast<uint32_t>(port);
    if constexpr (sizeof(Port) == 8) words[1] = static_cast<uint32_t>(port >> 32);
}
template <std::size_t N>
inline void get_port(const VlWide<N>& port, uint32_t* words) {
    for (std::size_t k = 0; k < N; ++k) words[k] = port[k];
}

#include "ports.h"

struct Block {
    VerilatedContext context;
    std::unique_ptr<Vtop> top;

    Block() : top(std::make_unique<Vtop>(&context)) {
        static const uint32_t zeros[ITEM_WORDS] = {};
        put(*top, zeros);
        top->I_VALID = 0;
        top->O_READY = 0;
#ifdef SIDE_VALID
        top->SIDE_VALID = 0;
#endif
        top->clk = 0;
        reset(2);
    }
    ~Block() { top->final(); }

    void reset(int cycles) {
        top->rst = 1;
        for (int k = 0; k < cycles; ++k) {
            top->eval();
            edge();
        }
        top->rst = 0;
        top->eval();
    }
    // The rising edge; the falling one comes with the evaluation of the next cycle's inputs.
    void edge() {
        top->clk = 1;
        top->eval();
        top->clk = 0;
    }
};
