-- Blanks, tabs, comments, older spellings, names that are commands

   -- a comment that is indented
create( db , "s" )
create(tbl,"t",s,3)	-- behind a tab
create(col,"a",s.t,unsorted)
create(col,"b",s.t,sorted)
create(col,"null",s.t)
create(idx,s.t.a,btree)
create(idx,s.t.a,btree,unclustered) -- error
create(idx,s.t.a,sorted)
create(idx,s.t.b,sorted,clustered) -- error
relational_insert( s.t , 1 , -2, 3 )
relational_insert(s.t,-2147483648,2147483647,0)
select = select(s . t . a,null, null)
fetch=fetch(s.t.a,select)
print( fetch )
print=sum(fetch)
print(print)
t=fetch(s.t.null,select)
print(t)
select(s.t.a,1,2)
sum(s.t.a)
quit -- error
select(s.t.a -- error
shutdown()
