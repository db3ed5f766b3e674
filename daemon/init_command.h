/* `freshetd init`: proposes a configuration from a sample of a topic's records (docs/commands.md,
 * "freshetd init"). */
#ifndef FR_INIT_COMMAND_H
#define FR_INIT_COMMAND_H

/* Reads the options that follow `init` (argv[0]), prints the proposal on stdout, or why there is
 * none in the log. Returns the exit code. Thread: main. */
int fr_init_command(int argc, char **argv);

#endif
