/* schema_ref.c: what a $ref points to, inside the same document. */
#include <stdlib.h>

#include "grammar/schema.h"

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* The next segment of a fragment, its escapes decoded, into `out`; false: it is not well written.
 */
static bool next_segment(const char **at, char *out, size_t room)
{
    size_t n = 0;
    const char *c = *at;
    for (; *c && *c != '/'; c++) {
        unsigned value = (uint8_t)*c;
        if (c[0] == '%' && hex_digit(c[1]) >= 0 && hex_digit(c[2]) >= 0) {
            value = (unsigned)(hex_digit(c[1]) * 16 + hex_digit(c[2]));
            c += 2;
        } else if (c[0] == '~' && (c[1] == '0' || c[1] == '1')) {
            value = c[1] == '0' ? '~' : '/';
            c++;
        }
        if (n + 1 >= room || value == 0) {
            return false;
        }
        out[n++] = (char)value;
    }
    out[n] = '\0';
    *at = c;
    return true;
}

static json_t *member(json_t *json, const char *segment)
{
    if (json_is_array(json)) {
        char *end;
        unsigned long index = strtoul(segment, &end, 10);
        return *segment && !*end ? json_array_get(json, index) : NULL;
    }
    return json_object_get(json, segment);
}

json_t *qn__schema_resolve(qn_schema *s, json_t *ref, const char *path)
{
    const char *text = json_string_value(ref);
    if (!text || text[0] != '#' || (text[1] != '\0' && text[1] != '/')) {
        qn__schema_fail(s, path,
                        "unsupported $ref %.100s, only references into the same document are "
                        "supported",
                        text ? text : "that is no string");
        return NULL;
    }
    json_t *json = s->root;
    for (const char *at = text + 1; *at == '/';) {
        char segment[256] = "";
        at++;
        json = next_segment(&at, segment, sizeof segment) ? member(json, segment) : NULL;
        if (!json) {
            qn__schema_fail(s, path, "cannot resolve $ref %.100s, %.80s not found", text, segment);
            return NULL;
        }
    }
    return json;
}
