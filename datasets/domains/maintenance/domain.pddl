; Maintenance: each day mechanics work at one airport and maintain all the planes that are there on that day.
(define (domain maintenance)
  (:requirements :strips :typing :conditional-effects)
  (:types plane day airport)
  (:predicates
    (at ?p - plane ?d - day ?c - airport)
    (today ?d - day)
    (done ?p - plane))
  (:action workat
    :parameters (?day - day ?airport - airport)
    :precondition (today ?day)
    :effect (and
      (not (today ?day))
      (forall (?plane - plane)
        (when (at ?plane ?day ?airport) (done ?plane))))))
