{{ config(materialized="ephemeral") }}
select customer, sum(amount) as total from {{ ref("customer_order") }} group by customer
