#include "textflag.h"

// func splitBlocks(hi, lo, values *byte, blocks int)
//
// X7 is the mask of low bytes.
TEXT ·splitBlocks(SB), NOSPLIT, $0-32
	MOVQ hi+0(FP), SI
	MOVQ lo+8(FP), BX
	MOVQ values+16(FP), DI
	MOVQ blocks+24(FP), CX
	PCMPEQW X7, X7
	PSRLW $8, X7

loop:
	MOVOU (DI), X0
	MOVOU 16(DI), X1
	MOVO X0, X2
	MOVO X1, X3
	PSLLW $1, X0
	PSLLW $1, X1
	PSRLW $15, X2
	PSRLW $15, X3
	POR X2, X0
	POR X3, X1
	MOVO X0, X2
	MOVO X1, X3
	PSRLW $8, X2
	PSRLW $8, X3
	PACKUSWB X3, X2
	PAND X7, X0
	PAND X7, X1
	PACKUSWB X1, X0
	MOVOU X2, (SI)
	MOVOU X0, (BX)
	ADDQ $32, DI
	ADDQ $16, SI
	ADDQ $16, BX
	DECQ CX
	JNZ loop
	RET

// func joinBlocks(values, hi, lo *byte, blocks int)
TEXT ·joinBlocks(SB), NOSPLIT, $0-32
	MOVQ values+0(FP), DI
	MOVQ hi+8(FP), SI
	MOVQ lo+16(FP), BX
	MOVQ blocks+24(FP), CX

loop:
	MOVOU (BX), X0
	MOVOU (SI), X1
	MOVO X0, X2
	PUNPCKLBW X1, X0
	PUNPCKHBW X1, X2
	MOVO X0, X3
	MOVO X2, X4
	PSRLW $1, X0
	PSRLW $1, X2
	PSLLW $15, X3
	PSLLW $15, X4
	POR X3, X0
	POR X4, X2
	MOVOU X0, (DI)
	MOVOU X2, 16(DI)
	ADDQ $32, DI
	ADDQ $16, SI
	ADDQ $16, BX
	DECQ CX
	JNZ loop
	RET
