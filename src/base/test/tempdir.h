/* A folder of its own for a test that needs real files. */
#ifndef TM_BASE_TEST_TEMPDIR_H
#define TM_BASE_TEST_TEMPDIR_H

#include "base/test/harness.h"

#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct tm_tempdir {
    char path[256];
};

static inline void tm_tempdir_make(struct tm_tempdir *dir)
{
    const char *under = getenv("TMPDIR");
    if (under == NULL || under[0] == '\0') under = "/tmp";
    (void)snprintf(dir->path, sizeof dir->path, "%.200s/tidemill-test-XXXXXX", under);
    assert_non_null(mkdtemp(dir->path));
}

static inline int tm_tempdir_remove_one(const char *path, const struct stat *status, int kind, struct FTW *place)
{
    (void)status;
    (void)kind;
    (void)place;
    return remove(path);
}

static inline void tm_tempdir_remove(struct tm_tempdir *dir)
{
    (void)nftw(dir->path, tm_tempdir_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* The path of `name` in the folder; one of four buffers in turn. */
static inline const char *tm_tempdir_path(const struct tm_tempdir *dir, const char *name)
{
    static char paths[4][512];
    static unsigned next;
    char *path = paths[next++ % 4];
    (void)snprintf(path, sizeof paths[0], "%s/%.200s", dir->path, name);
    return path;
}

/* How many names the folder holds. */
static inline int tm_tempdir_count(const char *path)
{
    DIR *folder = opendir(path);
    assert_non_null(folder);
    int count = 0;
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    (void)closedir(folder);
    return count;
}

#endif
