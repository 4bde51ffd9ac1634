#include "textflag.h"

// LOOK writes the bytes that the highest bits of w stand for, at o, and takes them off.
// An entry of the table in BX has the number of bits in its lowest byte, that of the
// bytes in the next, and then the bytes.
#define LOOK(w, o) \
	MOVQ w, AX; \
	SHRQ $53, AX; \
	MOVQ (BX)(AX*8), CX; \
	MOVQ CX, DX; \
	SHRQ $16, DX; \
	MOVQ DX, (DI)(o*1); \
	SHLQ CX, w; \
	MOVBLZX CH, CX; \
	ADDQ CX, o

// FILL makes w a word of 64 bits again, of which the lowest that is set is no bit of the
// stream but shows how many were taken off. What has no TZCNT takes it for BSF, which says
// the same of a word that is not zero.
#define FILL(w, in) \
	TZCNTQ w, CX; \
	MOVQ CX, AX; \
	SHRQ $3, AX; \
	MOVQ in, DX; \
	SUBQ AX, DX; \
	MOVQ DX, in; \
	MOVQ (SI)(DX*1), w; \
	ORQ $1, w; \
	ANDQ $7, CX; \
	SHLQ CX, w

// func decodeRounds(table *uint64, dst, src *byte, s *[4]stream, n int)
TEXT ·decodeRounds(SB), NOSPLIT, $40-40
	MOVQ s+24(FP), AX
	MOVQ n+32(FP), CX
	MOVQ CX, n-8(SP)
	MOVQ 0(AX), R8
	MOVQ 8(AX), DX
	MOVQ DX, in0-16(SP)
	MOVQ 16(AX), R12
	MOVQ 24(AX), R9
	MOVQ 32(AX), DX
	MOVQ DX, in1-24(SP)
	MOVQ 40(AX), R13
	MOVQ 48(AX), R10
	MOVQ 56(AX), DX
	MOVQ DX, in2-32(SP)
	MOVQ 64(AX), R14
	MOVQ 72(AX), R11
	MOVQ 80(AX), DX
	MOVQ DX, in3-40(SP)
	MOVQ 88(AX), R15
	MOVQ table+0(FP), BX
	MOVQ dst+8(FP), DI
	MOVQ src+16(FP), SI

loop:
	LOOK(R8, R12)
	LOOK(R9, R13)
	LOOK(R10, R14)
	LOOK(R11, R15)
	LOOK(R8, R12)
	LOOK(R9, R13)
	LOOK(R10, R14)
	LOOK(R11, R15)
	LOOK(R8, R12)
	LOOK(R9, R13)
	LOOK(R10, R14)
	LOOK(R11, R15)
	LOOK(R8, R12)
	LOOK(R9, R13)
	LOOK(R10, R14)
	LOOK(R11, R15)
	LOOK(R8, R12)
	LOOK(R9, R13)
	LOOK(R10, R14)
	LOOK(R11, R15)
	FILL(R8, in0-16(SP))
	FILL(R9, in1-24(SP))
	FILL(R10, in2-32(SP))
	FILL(R11, in3-40(SP))
	DECQ n-8(SP)
	JNZ loop

	MOVQ s+24(FP), AX
	MOVQ R8, 0(AX)
	MOVQ in0-16(SP), DX
	MOVQ DX, 8(AX)
	MOVQ R12, 16(AX)
	MOVQ R9, 24(AX)
	MOVQ in1-24(SP), DX
	MOVQ DX, 32(AX)
	MOVQ R13, 40(AX)
	MOVQ R10, 48(AX)
	MOVQ in2-32(SP), DX
	MOVQ DX, 56(AX)
	MOVQ R14, 64(AX)
	MOVQ R11, 72(AX)
	MOVQ in3-40(SP), DX
	MOVQ DX, 80(AX)
	MOVQ R15, 88(AX)
	RET
