/* Switches from one stack to another. ucontext asks the kernel for the signal mask each time, which
 * costs more than a kernel's step; on x86-64 the registers that a call must keep are enough.
 * Private. */
#ifndef FR_EMULATE_SWITCH_H
#define FR_EMULATE_SWITCH_H

#include <stddef.h>
#include <stdint.h>
#include <ucontext.h>

#include "base/check.h"

#if defined(__x86_64__)
struct fr_emulated_stack {
    void *pointer; /* the stack pointer, saved when the stack is left */
};

void fr_emulate_switch(struct fr_emulated_stack *from, const struct fr_emulated_stack *to);
__asm__(".text\n"
        ".globl fr_emulate_switch\n"
        ".type fr_emulate_switch, @function\n"
        "fr_emulate_switch:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq (%rsi), %rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n    popq %rbp\n"
        "    ret\n"
        ".size fr_emulate_switch, .-fr_emulate_switch\n");

/* `begin` never returns. */
static inline void fr_emulate_make(struct fr_emulated_stack *stack, void *memory, size_t bytes, void (*begin)(void))
{
    uintptr_t *top = (uintptr_t *)((char *)memory + bytes);
    *--top = 0;                /* no caller; it keeps the stack aligned as after a call */
    *--top = (uintptr_t)begin; /* what the first switch returns to */
    for (int saved = 0; saved < 6; saved++)
        *--top = 0;
    stack->pointer = top;
}
#else
struct fr_emulated_stack {
    ucontext_t context;
};

static inline void fr_emulate_switch(struct fr_emulated_stack *from, const struct fr_emulated_stack *to)
{
    FR_CHECK(swapcontext(&from->context, &to->context) == 0);
}

static inline void fr_emulate_make(struct fr_emulated_stack *stack, void *memory, size_t bytes, void (*begin)(void))
{
    FR_CHECK(getcontext(&stack->context) == 0);
    stack->context.uc_stack = (stack_t){.ss_sp = memory, .ss_size = bytes};
    makecontext(&stack->context, begin, 0);
}
#endif

#endif
