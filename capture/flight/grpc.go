package flight

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// code is how a call ends, as gRPC numbers it.
type code int

const (
	invalid         code = 3  // INVALID_ARGUMENT: what was sent will never be taken
	tooSlow         code = 4  // DEADLINE_EXCEEDED
	exhausted       code = 8  // RESOURCE_EXHAUSTED: try again later
	unimplemented   code = 12 // UNIMPLEMENTED
	unavailable     code = 14 // UNAVAILABLE: try again, elsewhere or later
	unauthenticated code = 16 // UNAUTHENTICATED
)

// callError ends a call.
type callError struct {
	code  code
	cause error
}

// Error is what the client is told.
func (e *callError) Error() string { return e.cause.Error() }

// Unwrap gives the cause.
func (e *callError) Unwrap() error { return e.cause }

func fail(c code, msg string, args ...any) error { return &callError{c, fmt.Errorf(msg, args...)} }

const (
	statusTrailer  = "Grpc-Status"
	messageTrailer = "Grpc-Message"
	maxMessage     = 1 << 10 // bytes of the message of a status
)

// finish sends the status of a call: OK when err is nil.
func finish(w http.ResponseWriter, err error) {
	c := code(0)
	if err != nil {
		c = invalid
		if e, ok := errors.AsType[*callError](err); ok {
			c = e.code
		}
		w.Header().Set(messageTrailer, escape(err.Error()))
	}
	_ = http.NewResponseController(w).Flush() // headers come before trailers; who is gone asks again
	w.Header().Set(statusTrailer, strconv.Itoa(int(c)))
}

// escape writes a message as a header can hold it.
func escape(msg string) string {
	var b strings.Builder
	for _, c := range []byte(msg[:min(len(msg), maxMessage)]) {
		if c < ' ' || c > '~' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// putResult is a gRPC message with a PutResult: its app_metadata is field 1.
func putResult(metadata []byte) []byte {
	const field1 = 1<<3 | 2
	msg := binary.AppendUvarint([]byte{field1}, uint64(len(metadata)))
	out := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(msg)+len(metadata)))
	return append(append(out, msg...), metadata...)
}

// clip keeps a message short whatever was sent.
func clip(s string) string {
	const most = 100
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
