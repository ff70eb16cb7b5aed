/* Where files of the user live, by the XDG rules, each overridable:
 *
 *     settings   $TIDEMILL_CONFIG_DIR, else $XDG_CONFIG_HOME/tidemill, else ~/.config/tidemill
 *     data       $TIDEMILL_DATA_DIR,   else $XDG_DATA_HOME/tidemill,   else ~/.local/share/tidemill
 *     state      $TIDEMILL_STATE_DIR,  else $XDG_STATE_HOME/tidemill,  else ~/.local/state/tidemill
 *     cache      $TIDEMILL_CACHE_DIR,  else $XDG_CACHE_HOME/tidemill,  else ~/.cache/tidemill */
#ifndef TM_BASE_PATHS_H
#define TM_BASE_PATHS_H

#include "base/arena.h"
#include "base/env.h"

enum tm_path_kind { TM_PATH_CONFIG, TM_PATH_DATA, TM_PATH_STATE, TM_PATH_CACHE };

/* The path of `name` in the folder of a kind (name "": the folder), in the arena; NULL with the error set where no
 * variable tells a home or memory is out. Relative XDG paths are ignored, as the rules say. */
const char *tm_path(struct tm_env *env, enum tm_path_kind kind, const char *name, struct tm_arena *arena,
                    struct tm_error *e);

/* What stands behind the last '/' of a path; the whole where that is nothing. Borrowed. */
const char *tm_path_base(const char *path);

#endif
