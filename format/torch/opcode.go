package torch

import "fmt"

// The opcodes the machine runs (CPython, Lib/pickletools.py). Those from protocol 4
// only let it walk on to the name that makes a foreign pickle refused.
const (
	opMark            = '('
	opEmptyTuple      = ')'
	opStop            = '.'
	opBinFloat        = 'G'
	opBinInt          = 'J'
	opBinInt1         = 'K'
	opBinInt2         = 'M'
	opNone            = 'N'
	opBinPersID       = 'Q'
	opReduce          = 'R'
	opShortBinString  = 'U'
	opBinUnicode      = 'X'
	opEmptyList       = ']'
	opAppend          = 'a'
	opBuild           = 'b'
	opGlobal          = 'c'
	opAppends         = 'e'
	opBinGet          = 'h'
	opLongBinGet      = 'j'
	opBinPut          = 'q'
	opLongBinPut      = 'r'
	opSetItem         = 's'
	opTuple           = 't'
	opSetItems        = 'u'
	opEmptyDict       = '}'
	opProto           = 0x80
	opTuple1          = 0x85
	opTuple2          = 0x86
	opTuple3          = 0x87
	opNewTrue         = 0x88
	opNewFalse        = 0x89
	opLong1           = 0x8a
	opLong4           = 0x8b
	opShortBinUnicode = 0x8c
	opEmptySet        = 0x8f
	opStackGlobal     = 0x93
	opMemoize         = 0x94
	opFrame           = 0x95
)

// refuse ends the run at an opcode that the machine does not have, by its name.
func (m *machine) refuse(op byte) {
	if m.err != nil {
		return
	}
	name := refusedName(op)
	if name == "" {
		m.malformed("opcode %#02x is not one of pickle's", op)
		return
	}
	naming := ""
	if n := len(m.stack); op == opStackGlobal && n >= 2 {
		module, ok1 := m.stack[n-2].(string)
		attr, ok2 := m.stack[n-1].(string)
		if ok1 && ok2 {
			naming = fmt.Sprintf(", naming %q", clip(module+"."+attr))
		}
	}
	m.unsupported("refused opcode %s (%#02x)%s: torch.save writes none", name, op, naming)
}

// clip shortens a string of the file for a message.
func clip(s string) string {
	if len(s) > 256 {
		return s[:256] + "…"
	}
	return s
}

func refusedName(op byte) string {
	switch op {
	case '0':
		return "POP"
	case '1':
		return "POP_MARK"
	case '2':
		return "DUP"
	case 'B':
		return "BINBYTES"
	case 'C':
		return "SHORT_BINBYTES"
	case 'F':
		return "FLOAT"
	case 'I':
		return "INT"
	case 'L':
		return "LONG"
	case 'P':
		return "PERSID"
	case 'S':
		return "STRING"
	case 'T':
		return "BINSTRING"
	case 'V':
		return "UNICODE"
	case 'd':
		return "DICT"
	case 'g':
		return "GET"
	case 'i':
		return "INST"
	case 'l':
		return "LIST"
	case 'o':
		return "OBJ"
	case 'p':
		return "PUT"
	case 0x81:
		return "NEWOBJ"
	case 0x82:
		return "EXT1"
	case 0x83:
		return "EXT2"
	case 0x84:
		return "EXT4"
	case 0x8d:
		return "BINUNICODE8"
	case 0x8e:
		return "BINBYTES8"
	case 0x90:
		return "ADDITEMS"
	case 0x91:
		return "FROZENSET"
	case 0x92:
		return "NEWOBJ_EX"
	case opStackGlobal:
		return "STACK_GLOBAL"
	case 0x96:
		return "BYTEARRAY8"
	case 0x97:
		return "NEXT_BUFFER"
	case 0x98:
		return "READONLY_BUFFER"
	}
	return ""
}

// kindOf names a value of the machine for a message.
func kindOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		return "a bool"
	case int64, bigInt:
		return "an integer"
	case float64:
		return "a float"
	case string:
		return "a string"
	case *sequence:
		if v.tuple {
			return "a tuple"
		}
		return "a list"
	case *dict:
		return "a dict"
	case *storage:
		return "a storage"
	case *view:
		return "a tensor"
	case *global:
		return v.name
	}
	return fmt.Sprintf("%T", v)
}
