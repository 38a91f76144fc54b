; Mystery Blocksworld: the four actions of Blocksworld under words that give nothing away.
(define (domain mystery-blocksworld)
  (:requirements :strips)
  (:predicates (craves ?x ?y) (planet ?x) (province ?x) (harmony) (pain ?x))
  (:action attack
    :parameters (?x)
    :precondition (and (province ?x) (planet ?x) (harmony))
    :effect (and (not (planet ?x)) (not (province ?x)) (not (harmony)) (pain ?x)))
  (:action succumb
    :parameters (?x)
    :precondition (pain ?x)
    :effect (and (not (pain ?x)) (province ?x) (harmony) (planet ?x)))
  (:action overcome
    :parameters (?x ?y)
    :precondition (and (pain ?x) (province ?y))
    :effect (and (not (pain ?x)) (not (province ?y)) (province ?x) (harmony) (craves ?x ?y)))
  (:action feast
    :parameters (?x ?y)
    :precondition (and (craves ?x ?y) (province ?x) (harmony))
    :effect (and (pain ?x) (province ?y) (not (province ?x)) (not (harmony)) (not (craves ?x ?y)))))
