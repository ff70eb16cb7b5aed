#include "wire/link_proof.h"

#include "base/planted.h"

#include <assert.h>
#include <string.h>

enum { CHANNEL_MAX = 256, WORD_BYTES = 8 };
static const char magic[TM_LINK_MAGIC_BYTES + 1] = "TMLINK01";

/* Made and compared over the same bytes, in the order of the words on the wire. */
struct statement {
    char word[WORD_BYTES];
    uint8_t of_connecting[TM_LINK_NONCE_BYTES];
    uint8_t of_listening[TM_LINK_NONCE_BYTES];
    char channel[CHANNEL_MAX];
};

static struct statement state(const struct tm_link_proof *proof, bool by_listening, const void *channel, size_t length)
{
    assert(channel != NULL && length > 0);
    struct statement s = {.word = ""};
    memcpy(s.word, by_listening ? "listens" : "connect", sizeof "listens");
    memcpy(s.of_connecting, proof->listens ? proof->other : proof->own, sizeof s.of_connecting);
    memcpy(s.of_listening, proof->listens ? proof->own : proof->other, sizeof s.of_listening);
    memcpy(s.channel, channel, length < CHANNEL_MAX ? length : CHANNEL_MAX);
    return s;
}

static void greet(const struct tm_link_proof *proof, struct tm_text *out)
{
    tm_text_append(out, magic, TM_LINK_MAGIC_BYTES);
    tm_text_append(out, (const char *)proof->own, sizeof proof->own);
}

void tm_link_proof__begin(struct tm_link_proof *proof, struct tm_env *env, bool listens, struct tm_text *out)
{
    assert(env != NULL && out != NULL);
    *proof = (struct tm_link_proof){.listens = listens};
    for (size_t i = 0; i < sizeof proof->own; i += sizeof(uint64_t)) {
        uint64_t random = env->random_u64(env);
        memcpy(proof->own + i, &random, sizeof random);
    }
    if (!listens) greet(proof, out);
}

size_t tm_link_proof__needs(const struct tm_link_proof *proof)
{
    if (proof->proven) return 0;
    if (!proof->listens) return TM_LINK_PROOF_NEEDS_MAX;
    return proof->greeted ? (size_t)TM_PROOF_BYTES : (size_t)TM_LINK_MAGIC_BYTES + TM_LINK_NONCE_BYTES;
}

static int prove(const struct tm_link_proof *proof, const char *token, const void *channel, size_t length,
                 struct tm_text *out)
{
    assert(proof->greeted);
    uint8_t made[TM_PROOF_BYTES];
    struct statement s = state(proof, proof->listens, channel, length);
    if (!tm_proof_make(token, &s, sizeof s, made)) return -(int)TM_ENOMEM;
    tm_text_append(out, (const char *)made, sizeof made);
    return 0;
}

int tm_link_proof__take(struct tm_link_proof *proof, const char *token, const void *channel, size_t channel_length,
                        const void *bytes, struct tm_text *out)
{
    assert(!proof->proven && token[0] != '\0' && bytes != NULL && out != NULL);
    const uint8_t *at = bytes;
    if (!proof->greeted) {
        if (memcmp(at, magic, TM_LINK_MAGIC_BYTES) != 0) return -(int)TM_EINPUT;
        memcpy(proof->other, at + TM_LINK_MAGIC_BYTES, sizeof proof->other);
        at += TM_LINK_MAGIC_BYTES + TM_LINK_NONCE_BYTES;
        proof->greeted = true;
        if (proof->listens) {
            greet(proof, out);
            return prove(proof, token, channel, channel_length, out);
        }
    }
    struct statement theirs = state(proof, !proof->listens, channel, channel_length);
    if (!tm_proof_right(token, &theirs, sizeof theirs, at) && !TM_PLANTED(link_unproven)) return -(int)TM_EPEER;
    proof->proven = true;
    return proof->listens ? 0 : prove(proof, token, channel, channel_length, out);
}
