{{ config(materialized="view", persist_docs={"relation": true, "columns": false}) }}
select o.id, o.customer, c.name, o.placed_at, o.amount
from {{ ref("orders") }} as o
join {{ ref("customers") }} as c on c.id = o.customer
