/*
 * An agent library that no JVM can use, and that counts how often one was asked to: each time it is loaded it adds a line
 * to the file ATTEMPTS (a macro) and says that it could not start.
 */
#include <stdio.h>

int Agent_OnAttach(void *machine, char *options, void *reserved) {
    (void)machine, (void)reserved;
    FILE *attempts = fopen(ATTEMPTS, "a");
    if (attempts) {
        fprintf(attempts, "%s\n", options);
        fclose(attempts);
    }
    return 2;
}
