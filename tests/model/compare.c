// SPDX-License-Identifier: GPL-2.0
/*
 * keel's tree of objects in debugfs, compared with the model: which objects exist,
 * their numbers, references and holds, the states of QPs, the CQEs of CQs.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model.h"

#define TREE		"/sys/kernel/debug/keel/keel0/objects"
#define LINES		400

static const char * const names[K_TREE] = {
	"domain", "pd", "parent", "td", "xrcd", "shpd", "dm", "mr", "dm_mr",
	"mw", "ah", "cq", "srq", "qp",
};

static const char * const states[] = {
	"reset", "init", "rtr", "rts", "sqd", "sqe", "err",
};

/* A line of the tree. */
struct line {
	enum kind kind;
	unsigned int id, refs;
	char text[200], holds[120];
};

static struct line lines[LINES];
static int n_lines;
static char text[65536];

static void read_text(void)
{
	int fd = open(TREE, O_RDONLY | O_CLOEXEC);
	ssize_t n, len = 0;

	if (fd < 0)
		diverge("cannot open " TREE);
	while ((n = read(fd, text + len, sizeof(text) - 1 - len)) > 0)
		len += n;
	close(fd);
	text[len] = '\0';
}

static enum kind kind_of(const char *name)
{
	int kind;

	for (kind = 0; kind < K_TREE; kind++)
		if (!strcmp(names[kind], name))
			return kind;
	diverge("debugfs has an object of the unknown kind %s", name);
}

static void parse(char *at)
{
	struct line *line = &lines[n_lines];
	char name[16], *holds, *held;
	int skip = 0;

	held = strstr(at, " held by ");
	if (held)
		*held = '\0';
	holds = strstr(at, " holds ");
	if (holds)
		*holds = '\0';
	if (sscanf(at, " %15s %u refs %u pid %*d (%*[^)])%n", name, &line->id,
		   &line->refs, &skip) != 3 || !skip)
		diverge("debugfs: cannot read the line: %s", at);
	/* The buffer of an imported DM may outlive its handle. */
	if (strstr(at + skip, " closing"))
		return;
	line->kind = kind_of(name);
	snprintf(line->text, sizeof(line->text), "%s ", at + skip);
	snprintf(line->holds, sizeof(line->holds), "%s",
		 holds ? holds + strlen(" holds ") : "");
	n_lines++;
}

static int by_kind_and_id(const void *a, const void *b)
{
	const struct line *x = a, *y = b;

	if (x->kind != y->kind)
		return x->kind < y->kind ? -1 : 1;
	return x->id < y->id ? -1 : x->id > y->id;
}

static void read_tree(void)
{
	char *save = NULL, *at;

	read_text();
	n_lines = 0;
	for (at = strtok_r(text, "\n", &save); at && n_lines < LINES;
	     at = strtok_r(NULL, "\n", &save))
		parse(at);
	qsort(lines, n_lines, sizeof(*lines), by_kind_and_id);
}

static int by_birth(const void *a, const void *b)
{
	const struct obj *x = *(struct obj *const *)a;
	const struct obj *y = *(struct obj *const *)b;

	return x->born < y->born ? -1 : x->born > y->born;
}

/* Numbers count upwards, so the lines of a kind are in the order of creation. */
static const struct line *lines_of(enum kind kind, struct obj **objs, int *n)
{
	const struct line *first = NULL;
	int i;

	*n = 0;
	for (i = 0; i < n_lines; i++)
		if (lines[i].kind == kind) {
			if (!first)
				first = &lines[i];
			(*n)++;
		}
	memcpy(objs, world.live[kind], world.n[kind] * sizeof(*objs));
	qsort(objs, world.n[kind], sizeof(*objs), by_birth);
	return first;
}

static unsigned long value(const struct line *line, const char *word)
{
	char with[32];
	const char *at;

	snprintf(with, sizeof(with), " %s ", word);
	at = strstr(line->text, with);
	return at ? strtoul(at + strlen(with), NULL, 0) : ~0UL;
}

/* --- differences ----------------------------------------------------------- */

static char why[300];

static bool differs(const struct line *line, const char *what, unsigned long got,
		    unsigned long want)
{
	if (got == want)
		return false;
	snprintf(why, sizeof(why), "tree: %s of a %s: got %lu, want %lu (%s %u)",
		 what, names[line->kind], got, want, names[line->kind],
		 line->id);
	return true;
}

static unsigned int refs_of(const struct obj *o)
{
	unsigned int refs = o->kind != K_DOMAIN;

	refs += obj_holders(o);
	if (o->kind == K_SRQ)
		refs += wire_waiters(o);
	return refs;
}

static bool holds_differ(const struct line *line, const struct obj *o)
{
	char want[120] = "", one[32];
	int i;

	for (i = 0; i < MAX_HOLDS && o->holds[i]; i++) {
		snprintf(one, sizeof(one), "%s%s %u", i ? ", " : "",
			 names[o->holds[i]->kind], o->holds[i]->id);
		strcat(want, one);
	}
	if (!strcmp(want, line->holds))
		return false;
	snprintf(why, sizeof(why), "tree: holds of a %s: got \"%s\", want \"%s\" (%s %u)",
		 names[line->kind], line->holds, want, names[line->kind],
		 line->id);
	return true;
}

static bool details_differ(const struct line *line, const struct obj *o)
{
	char state[32];

	switch (o->kind) {
	case K_MR:
	case K_DM_MR:
		return differs(line, "key", value(line, "key"), o->mr.key) ||
		       differs(line, "length", value(line, "length"),
			       o->mr.length);
	case K_MW:
		return differs(line, "key", value(line, "key"), o->mw.key) ||
		       differs(line, "length", value(line, "length"),
			       o->mw.length);
	case K_CQ:
		return differs(line, "entries", value(line, "entries"),
			       o->cq.size) ||
		       differs(line, "added", value(line, "added"),
			       o->cq.added);
	case K_SRQ:
		return differs(line, "entries", value(line, "entries"),
			       o->srq.rq.size);
	case K_QP:
		snprintf(state, sizeof(state), " %s ", states[o->qp.state]);
		if (strstr(line->text, state))
			return false;
		snprintf(why, sizeof(why), "tree: state of a qp: got \"%s\", want%s(qp %u)",
			 line->text, state, line->id);
		return true;
	default:
		return false;
	}
}

static bool obj_differs(const struct line *line, struct obj *o)
{
	if (differs(line, "number", line->id, o->id) || holds_differ(line, o) ||
	    details_differ(line, o))
		return true;
	/* Mappings have references on a DM. */
	return o->kind != K_DM &&
	       differs(line, "references", line->refs, refs_of(o));
}

static bool kind_differs(enum kind kind)
{
	struct obj *objs[MAX_LIVE];
	const struct line *line;
	int i, n;

	line = lines_of(kind, objs, &n);
	if (n != world.n[kind]) {
		snprintf(why, sizeof(why), "tree: number of objects of kind %s: got %d, want %d",
			 names[kind], n, world.n[kind]);
		return true;
	}
	for (i = 0; i < n; i++)
		if (obj_differs(&line[i], objs[i]))
			return true;
	return false;
}

/* The first tree with a new object tells its number, which its holders show, too. */
static void learn_numbers(enum kind kind)
{
	struct obj *objs[MAX_LIVE];
	const struct line *line;
	int i, n;

	line = lines_of(kind, objs, &n);
	for (i = 0; n == world.n[kind] && i < n; i++)
		if (!objs[i]->id)
			objs[i]->id = line[i].id;
}

static bool tree_differs(void)
{
	int kind;

	read_tree();
	for (kind = 0; kind < K_TREE; kind++)
		learn_numbers(kind);
	for (kind = 0; kind < K_TREE; kind++)
		if (kind_differs(kind))
			return true;
	return false;
}

void tree_compare(void)
{
	int ms;

	result->trees++;
	/* A kernel thread may still use an object that was destroyed. */
	for (ms = 0; tree_differs(); ms += 2) {
		if (ms > patience_ms)
			diverge("%s", why);
		usleep(2000);
	}
}

/* --- completions ----------------------------------------------------------- */

static bool cqs_differ(void)
{
	struct obj *objs[MAX_LIVE];
	const struct line *line;
	int i, n;

	read_tree();
	line = lines_of(K_CQ, objs, &n);
	if (n != world.n[K_CQ]) {
		snprintf(why, sizeof(why), "tree: number of CQs: got %d, want %d",
			 n, world.n[K_CQ]);
		return true;
	}
	for (i = 0; i < n; i++)
		if (differs(&line[i], "completions", value(&line[i], "added"),
			    objs[i]->cq.added))
			return true;
	return false;
}

static void mark_loose(void)
{
	struct obj *cq;
	int i, j;

	for (i = 0; i < world.n[K_CQ]; i++) {
		cq = world.live[K_CQ][i];
		for (j = 0; j < cq->cq.n; j++)
			if (cq->cq.wc[j].step == world.step)
				cq->cq.wc[j].loose = true;
	}
}

void settle(void)
{
	int ms;

	if (world.loose) {
		mark_loose();
		for (ms = 0; cqs_differ(); ms += 2) {
			if (ms > patience_ms)
				diverge("%s", why);
			if (ms)
				usleep(2000);
		}
	}
	bytes_compare();
}
