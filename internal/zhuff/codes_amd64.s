#include "textflag.h"

// FOUR adds the codes of the four bytes of SI that begin at o from R8 on to the word in
// R10, of which R11 bits are used, writes it, and takes off the bytes that are whole. An
// entry of the table in BX is a length in its lowest byte and the code above.
#define FOUR(o) \
	MOVWLZX (o+2)(SI)(R8*1), AX; \
	MOVWLZX o(SI)(R8*1), DX; \
	MOVL (BX)(AX*4), CX; \
	MOVL (BX)(DX*4), DX; \
	LEAL (CX)(DX*1), AX; \
	SHRL $8, DX; \
	SHLQ CX, DX; \
	SHRL $8, CX; \
	ORQ CX, DX; \
	MOVQ R11, CX; \
	SHLQ CX, DX; \
	ORQ DX, R10; \
	MOVBLZX AX, AX; \
	ADDQ AX, R11; \
	MOVQ R10, (DI); \
	MOVQ R11, DX; \
	SHRQ $3, DX; \
	ADDQ DX, DI; \
	MOVQ R11, CX; \
	ANDQ $0x38, CX; \
	SHRQ CX, R10; \
	ANDQ $7, R11

// func encodeEights(table *uint32, dst, src *byte, room, n int, word uint64, used int) (out, left int, rest uint64, bits int)
TEXT ·encodeEights(SB), NOSPLIT, $0-88
	MOVQ table+0(FP), BX
	MOVQ dst+8(FP), DI
	MOVQ src+16(FP), SI
	MOVQ room+24(FP), R9
	MOVQ n+32(FP), R8
	MOVQ word+40(FP), R10
	MOVQ used+48(FP), R11
	LEAQ -16(DI)(R9*1), R9 // the last place for two words
	JMP next

loop:
	FOUR(-4)
	FOUR(-8)
	SUBQ $8, R8

next:
	CMPQ DI, R9
	JA done
	CMPQ R8, $8
	JGE loop

done:
	SUBQ dst+8(FP), DI
	MOVQ DI, out+56(FP)
	MOVQ R8, left+64(FP)
	MOVQ R10, rest+72(FP)
	MOVQ R11, bits+80(FP)
	RET
