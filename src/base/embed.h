/* Files that are part of the binary. TM_EMBED(label, "path under data/") at file scope declares label_begin and
 * label_end, both of this file alone; the assembler includes the file, so CMakeLists.txt must name it as a dependency
 * (tidemill_embed). */
#ifndef TM_BASE_EMBED_H
#define TM_BASE_EMBED_H

#define TM_EMBED(label, path)                                                                                          \
    __asm__(".section .rodata\n"                                                                                       \
            ".balign 16\n" #label "_begin:\n"                                                                          \
            ".incbin \"" TIDEMILL_DATA_DIR "/" path "\"\n" #label "_end:\n"                                            \
            ".byte 0\n"                                                                                                \
            ".previous\n");                                                                                            \
    extern const char label##_begin[];                                                                                 \
    extern const char label##_end[]

#endif
