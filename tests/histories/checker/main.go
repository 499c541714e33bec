// Asks Porcupine whether histories are linearizable: JSON on standard input, one verdict per line on standard output.
//
// A queue: "put" of a value that got a number, "end" with the number the next one gets, "all" with every value in order.
// A register: "set" and "get". A lock: "lock" (result 1: granted) and "unlock", the value is who asks.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

type operation struct {
	Op     string  `json:"op"`
	Client int     `json:"client"`
	Value  int64   `json:"value"`
	Result int64   `json:"result"`
	All    []int64 `json:"all"`
	Call   int64   `json:"call"`
	End    int64   `json:"end"`
	Known  bool    `json:"known"` // whether the result was told
}

type history struct {
	Model      string      `json:"model"`
	Key        string      `json:"key"`
	Operations []operation `json:"operations"`
}

// A queue as a list that shares its beginning with earlier ones.
type queue struct {
	before *queue
	value  int64
	length int64
	digest uint64
}

func (all *queue) with(value int64) *queue {
	return &queue{all, value, all.length + 1, (all.digest^uint64(value))*1099511628211 + 1}
}

func (all *queue) holds(values []int64) bool {
	if all.length != int64(len(values)) {
		return false
	}
	for at := len(values) - 1; at >= 0; at, all = at-1, all.before {
		if all.value != values[at] {
			return false
		}
	}
	return true
}

func stepQueue(state, input, _ interface{}) (bool, interface{}) {
	all, asked := state.(*queue), input.(operation)
	switch asked.Op {
	case "put":
		return !asked.Known || asked.Result == all.length, all.with(asked.Value)
	case "end":
		return asked.Result == all.length, all
	default:
		return all.holds(asked.All), all
	}
}

func stepRegister(state, input, _ interface{}) (bool, interface{}) {
	asked := input.(operation)
	if asked.Op == "set" {
		return true, asked.Value
	}
	return state.(int64) == asked.Result, state
}

func stepLock(state, input, _ interface{}) (bool, interface{}) {
	owner, asked := state.(int64), input.(operation)
	free := owner == 0 || owner == asked.Value
	switch {
	case asked.Op == "unlock" && owner == asked.Value:
		return true, int64(0)
	case asked.Op == "unlock":
		return true, owner
	case asked.Known && free != (asked.Result == 1):
		return false, owner
	case free:
		return true, asked.Value
	default:
		return true, owner
	}
}

var models = map[string]porcupine.Model{
	"queue": {
		Init: func() interface{} { return &queue{} },
		Step: stepQueue,
		Equal: func(one, other interface{}) bool {
			a, b := one.(*queue), other.(*queue)
			return a == b || a.length == b.length && a.digest == b.digest
		},
	},
	"register": {Init: func() interface{} { return int64(0) }, Step: stepRegister},
	"lock":     {Init: func() interface{} { return int64(0) }, Step: stepLock},
}

func main() {
	var asked struct {
		TimeoutS  int       `json:"timeout_s"`
		Histories []history `json:"histories"`
	}
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, each := range asked.Histories {
		model, known := models[each.Model]
		if !known {
			fmt.Fprintln(os.Stderr, "no such model:", each.Model)
			os.Exit(1)
		}
		operations := make([]porcupine.Operation, len(each.Operations))
		for at, one := range each.Operations {
			operations[at] = porcupine.Operation{ClientId: one.Client, Input: one, Call: one.Call, Return: one.End}
		}
		began := time.Now()
		verdict := porcupine.CheckOperationsTimeout(model, operations, time.Duration(asked.TimeoutS)*time.Second)
		text, _ := json.Marshal(map[string]interface{}{
			"key": each.Key, "verdict": string(verdict), "operations": len(operations),
			"seconds": time.Since(began).Seconds(),
		})
		fmt.Println(string(text))
	}
}
