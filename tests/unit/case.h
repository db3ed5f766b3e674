/* How a unit test is written: cmocka with what it needs before it, and a case or a fixture in one line. */
#ifndef FR_TESTS_CASE_H
#define FR_TESTS_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* One behaviour. Its name is a sentence; `state` is what the fixture left, where there is one. */
#define FR_CASE(name) static void name(void **state __attribute__((unused)))
/* What goes before or after a case or a program; 0: done. */
#define FR_FIXTURE(name) static int name(void **state __attribute__((unused)))

#endif
