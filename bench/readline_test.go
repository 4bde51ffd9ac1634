package bench

import (
	"bufio"
	"fmt"
	"strings"
	"testing"
)

func TestReadLine(t *testing.T) {
	t.Parallel()
	const most = 100
	tests := map[string]struct{ text, line, err string }{
		"line":         {"a\nb\n", "a\n", "<nil>"},
		"longest":      {strings.Repeat("x", most-1) + "\n", strings.Repeat("x", most-1) + "\n", "<nil>"},
		"too long":     {strings.Repeat("x", most) + "\n", "", "is longer than 100 bytes"},
		"without end":  {"abc", "abc", "EOF"},
		"nothing":      {"", "", "EOF"},
		"never an end": {strings.Repeat("x", 1000), "", "is longer than 100 bytes"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			line, err := readLine(bufio.NewReaderSize(strings.NewReader(tt.text), 16), most)
			if string(line) != tt.line || fmt.Sprint(err) != tt.err {
				t.Errorf("readLine: got %q and error %v, want %q and %s", line, err, tt.line, tt.err)
			}
		})
	}
}
