// SPDX-License-Identifier: GPL-2.0
/*
 * A ring of ranks: messages of all sizes in both protocols of an MPI library,
 * collectives and one-sided operations. Each rank verifies every byte. With the
 * argument "speed" it also measures, and with "two-sided" it makes no windows.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX	(4 << 20)

static unsigned char byte_of(int rank, int len, int i)
{
	return rank * 31 + len * 7 + i * 13 + (i >> 8);
}

static void fill(unsigned char *buf, int rank, int len)
{
	int i;

	for (i = 0; i < len; i++)
		buf[i] = byte_of(rank, len, i);
}

static void verify(const unsigned char *buf, int rank, int len)
{
	int i;

	for (i = 0; i < len; i++) {
		if (buf[i] != byte_of(rank, len, i)) {
			fprintf(stderr, "byte %d of %d from rank %d: got %d, want %d\n",
				i, len, rank, buf[i], byte_of(rank, len, i));
			MPI_Abort(MPI_COMM_WORLD, 1);
		}
	}
}

static void ring(unsigned char *out, unsigned char *in, int rank, int size)
{
	int to = (rank + 1) % size, from = (rank + size - 1) % size, len;

	for (len = 1; len <= MAX; len *= 4) {
		fill(out, rank, len);
		memset(in, 0, len);
		MPI_Sendrecv(out, len, MPI_BYTE, to, len, in, len, MPI_BYTE, from, len,
			     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		verify(in, from, len);
	}
}

static void one_sided(unsigned char *out, unsigned char *in, int rank, int size)
{
	int to = (rank + 1) % size, from = (rank + size - 1) % size;
	int len = 1 << 20;
	long *base, one = 1;
	MPI_Win win;

	memset(in, 0, len);
	fill(out, rank, len);
	MPI_Win_create(in, len, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	MPI_Win_fence(0, win);
	MPI_Put(out, len, MPI_BYTE, to, 0, len, MPI_BYTE, win);
	MPI_Win_fence(0, win);
	verify(in, from, len);
	memset(out, 0, len);
	MPI_Get(out, len, MPI_BYTE, to, 0, len, MPI_BYTE, win);
	MPI_Win_fence(0, win);
	verify(out, rank, len);
	MPI_Win_free(&win);

	MPI_Win_allocate(sizeof(*base), sizeof(*base), MPI_INFO_NULL, MPI_COMM_WORLD,
			 &base, &win);
	*base = 0;
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(0, win);
	for (len = 0; len < 100; len++)
		MPI_Accumulate(&one, 1, MPI_LONG, 0, 0, 1, MPI_LONG, MPI_SUM, win);
	MPI_Win_unlock_all(win);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(0, win);
	if (rank == 0 && *base != 100L * size) {
		fprintf(stderr, "got a sum of %ld, want %ld\n", *base, 100L * size);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	MPI_Win_unlock_all(win);
	MPI_Win_free(&win);
}

static void speed(unsigned char *out, unsigned char *in, int rank)
{
	int len = 1 << 20, n = 50, i;
	double start = MPI_Wtime();

	if (rank > 1)
		return;
	for (i = 0; i < n; i++)
		MPI_Sendrecv(out, len, MPI_BYTE, !rank, 0, in, len, MPI_BYTE, !rank, 0,
			     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	if (rank == 0)
		printf("# figure sendrecv-1m %.0f MiB/s\n", 2 * n / (MPI_Wtime() - start));
}

int main(int argc, char **argv)
{
	unsigned char *out = malloc(MAX), *in = malloc(MAX);
	int rank, size, sum = 0, one;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	ring(out, in, rank, size);
	one = rank + 1;
	MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (sum != size * (size + 1) / 2) {
		fprintf(stderr, "got a sum of %d\n", sum);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	if (argc == 1 || strcmp(argv[1], "two-sided"))
		one_sided(out, in, rank, size);
	if (argc > 1 && !strcmp(argv[1], "speed"))
		speed(out, in, rank);
	MPI_Finalize();
	if (rank == 0)
		printf("all data of %d ranks is right\n", size);
	return 0;
}
