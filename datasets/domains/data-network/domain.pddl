; Data Network: servers make data from data by scripts in little memory, and send them to each other.
(define (domain data-network)
  (:requirements :strips :typing :negative-preconditions :action-costs)
  (:types data script server numbers)
  (:predicates
    (script-io ?s - script ?in1 ?in2 ?out - data)
    (connected ?from ?to - server)
    (data-size ?d - data ?n - numbers)
    (capacity ?s - server ?n - numbers)
    (sum ?n1 ?n2 ?sum - numbers)
    (less-equal ?n1 ?n2 - numbers)
    (saved ?d - data ?s - server)
    (cached ?d - data ?s - server)
    (usage ?s - server ?n - numbers))
  (:functions
    (total-cost) - number
    (process-cost ?sc - script ?s - server) - number
    (send-cost ?from ?to - server ?size - numbers) - number
    (io-cost ?s - server ?size - numbers) - number)
  (:action load
    :parameters (?d - data ?s - server ?size ?limit ?before ?after - numbers)
    :precondition
      (and (saved ?d ?s) (not (cached ?d ?s)) (data-size ?d ?size) (usage ?s ?before)
           (sum ?before ?size ?after) (capacity ?s ?limit) (less-equal ?after ?limit))
    :effect
      (and (cached ?d ?s) (usage ?s ?after) (not (usage ?s ?before))
           (increase (total-cost) (io-cost ?s ?size))))
  (:action save
    :parameters (?d - data ?size - numbers ?s - server)
    :precondition (and (cached ?d ?s) (data-size ?d ?size))
    :effect (and (saved ?d ?s) (increase (total-cost) (io-cost ?s ?size))))
  (:action release
    :parameters (?d - data ?s - server ?size ?before ?after - numbers)
    :precondition (and (cached ?d ?s) (data-size ?d ?size) (usage ?s ?before) (sum ?after ?size ?before))
    :effect
      (and (usage ?s ?after) (not (cached ?d ?s)) (not (usage ?s ?before))
           (increase (total-cost) 0)))
  (:action send
    :parameters (?d - data ?from ?to - server ?size ?limit ?before ?after - numbers)
    :precondition
      (and (connected ?from ?to) (cached ?d ?from) (not (cached ?d ?to)) (data-size ?d ?size) (usage ?to ?before)
           (sum ?before ?size ?after) (capacity ?to ?limit) (less-equal ?after ?limit))
    :effect
      (and (cached ?d ?to) (usage ?to ?after) (not (usage ?to ?before))
           (increase (total-cost) (send-cost ?from ?to ?size))))
  (:action process
    :parameters (?in1 ?in2 ?out - data ?sc - script ?s - server ?size ?limit ?before ?after - numbers)
    :precondition
      (and (script-io ?sc ?in1 ?in2 ?out) (cached ?in1 ?s) (cached ?in2 ?s) (not (cached ?out ?s))
           (data-size ?out ?size) (usage ?s ?before)
           (sum ?before ?size ?after) (capacity ?s ?limit) (less-equal ?after ?limit))
    :effect
      (and (cached ?out ?s) (usage ?s ?after) (not (usage ?s ?before))
           (increase (total-cost) (process-cost ?sc ?s)))))
